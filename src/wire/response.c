// See response.h. Values are read one at a time; the open arrays and maps are a stack of counts in
// the reader, so nesting needs no recursion.
#include "wire/response.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/number.h"

#include <assert.h>

enum { LEAST_VALUE = sizeof "_\r\n" - 1 };

// The value being read.
struct response_input {
    struct response *reader;
    const struct response_limits *limits;
    const uint8_t *text; // after the byte with its kind
    size_t size;         // bytes available
};

static int response_malformed(const char *what) {
    return error_set(MR_EINVAL, "the reply is malformed: %s", what);
}

static int response_over_limit(const char *what, size_t limit) {
    return error_set(MR_ETOOBIG, "the reply is too large: more than %zu %s", limit, what);
}

static int response_length_refused(int err, const char *what, size_t limit) {
    return err == MR_ETOOBIG ? response_over_limit(what, limit)
                             : response_malformed("a length is not a number");
}

// ---- One value --------------------------------------------------------------------------------
// Each of these returns the bytes used after the kind; 0: more are needed (reader->need says how
// many, if that is known); or an error.

static ptrdiff_t response_literal_read(const struct response_input *in, const char *literal) {
    size_t whole = strlen(literal), size = in->size < whole ? in->size : whole;
    if (memcmp(in->text, literal, size) != 0)
        return response_malformed("neither null nor true nor false");
    return size == whole ? (ptrdiff_t)whole : 0;
}

static ptrdiff_t response_null_read(const struct response_input *in, const char *literal,
                                    struct response_value *out) {
    *out = (struct response_value){ .type = RESPONSE_NULL };
    return response_literal_read(in, literal);
}

static ptrdiff_t response_boolean_read(const struct response_input *in,
                                       struct response_value *out) {
    bool no = in->size > 0 && in->text[0] == 'f';
    *out = (struct response_value){ .type = RESPONSE_BOOLEAN, .boolean = !no };
    return response_literal_read(in, no ? "f\r\n" : "t\r\n");
}

static ptrdiff_t response_integer_read(const struct response_input *in,
                                       struct response_value *out) {
    bool negative = in->size > 0 && in->text[0] == '-';
    uint64_t most = (uint64_t)INT64_MAX + negative, number = 0;
    int used = number_read(in->text + negative, in->size - negative, most, &number);
    if (used < 0)
        return response_malformed("an integer is not a number of 64 bits");
    if (used == 0)
        return 0;
    int64_t integer = (int64_t)(negative ? -number : number);
    *out = (struct response_value){ .type = RESPONSE_INTEGER, .integer = integer };
    return used + negative;
}

static ptrdiff_t response_line_read(const struct response_input *in, enum response_type type,
                                    struct response_value *out) {
    size_t most = in->limits->line_size + 2, size = in->size < most ? in->size : most;
    size_t searched = in->reader->searched;
    const uint8_t *end =
        searched < size ? memchr(in->text + searched, '\n', size - searched) : NULL;
    in->reader->searched = size;
    if (!end)
        return size == most ? response_over_limit("bytes in a line", in->limits->line_size) : 0;
    if (end == in->text || end[-1] != '\r')
        return response_malformed("a line ends without CR");
    mr_bytes bytes = { in->text, (size_t)(end - in->text) - 1 };
    *out = (struct response_value){ .type = type, .bytes = bytes };
    return end - in->text + 1;
}

static ptrdiff_t response_bulk_read(const struct response_input *in, struct response_value *out) {
    if (in->size > 0 && in->text[0] == '-')
        return response_null_read(in, "-1\r\n", out);
    uint64_t length = 0;
    int used = number_read(in->text, in->size, in->limits->bulk_size, &length);
    if (used < 0)
        return response_length_refused(used, "bytes in a bulk string", in->limits->bulk_size);
    if (used == 0)
        return 0;
    size_t end = (size_t)used + length;
    if (end + 2 > in->size) {
        in->reader->need = in->reader->at + 1 + end + 2;
        return 0;
    }
    if (!number_is_line_end(in->text + end))
        return response_malformed("a bulk string does not end where its length says");
    *out = (struct response_value){ .type = RESPONSE_BULK, .bytes = { in->text + used, length } };
    return (ptrdiff_t)end + 2;
}

static ptrdiff_t response_aggregate_read(const struct response_input *in, enum response_type type,
                                         struct response_value *out) {
    if (in->size > 0 && in->text[0] == '-' && type == RESPONSE_ARRAY)
        return response_null_read(in, "-1\r\n", out);
    uint32_t each = type == RESPONSE_MAP ? 2 : 1;
    uint64_t most = in->limits->values - 1 - in->reader->inside, count = 0;
    int used = number_read(in->text, in->size, most / each, &count);
    if (used < 0)
        return response_length_refused(used, "values", in->limits->values);
    if (used == 0)
        return 0;
    *out = (struct response_value){ .type = type, .count = (uint32_t)count * each };
    return used;
}

static ptrdiff_t response_value_read(const struct response_input *in, uint8_t kind,
                                     struct response_value *out) {
    switch (kind) {
    case '+':
        return response_line_read(in, RESPONSE_SIMPLE, out);
    case '-':
        return response_line_read(in, RESPONSE_ERROR, out);
    case ',':
        return response_line_read(in, RESPONSE_DOUBLE, out);
    case ':':
        return response_integer_read(in, out);
    case '$':
        return response_bulk_read(in, out);
    case '*':
        return response_aggregate_read(in, RESPONSE_ARRAY, out);
    case '%':
        return response_aggregate_read(in, RESPONSE_MAP, out);
    case '>':
        return response_aggregate_read(in, RESPONSE_PUSH, out);
    case '_':
        return response_null_read(in, "\r\n", out);
    case '#':
        return response_boolean_read(in, out);
    }
    return response_malformed("a value of unknown kind");
}

// ---- Values within values ---------------------------------------------------------------------

// Counts the value that ends at `end`. Returns 1 if the reply is complete with it, else 0.
static int response_count_value(struct response *r, const struct response_limits *limits,
                                size_t end, const struct response_value *value) {
    if (end + (uint64_t)value->count * LEAST_VALUE > limits->size)
        return response_over_limit("bytes", limits->size);
    if (value->count > 0 && r->depth == RESPONSE_DEPTH)
        return response_over_limit("values within each other", RESPONSE_DEPTH);
    r->at = end;
    r->searched = 0;
    r->count++;
    r->inside += value->count;
    if (value->count > 0) {
        r->left[r->depth++] = value->count;
        return 0;
    }
    while (r->depth > 0 && --r->left[r->depth - 1] == 0)
        r->depth--;
    return r->depth == 0;
}

// Continues from value to value and stores them in `values` unless that is NULL. Returns 1 when the
// reply is complete, 0 when bytes are missing.
static int response_walk(struct response *r, const struct response_limits *limits,
                         const uint8_t *data, size_t size, struct response_value *values) {
    for (;;) {
        r->need = size + 1;
        if (r->at == size)
            return 0;
        struct response_input in = { r, limits, data + r->at + 1, size - r->at - 1 };
        struct response_value value;
        ptrdiff_t used = response_value_read(&in, data[r->at], &value);
        if (used < 0)
            return (int)used;
        if (used == 0)
            return r->need > limits->size ? response_over_limit("bytes", limits->size) : 0;
        if (values)
            values[r->count] = value;
        int whole = response_count_value(r, limits, r->at + 1 + (size_t)used, &value);
        if (whole != 0)
            return whole;
    }
}

ptrdiff_t response_read(struct response *r, const struct response_limits *limits,
                        const uint8_t *data, size_t size, struct response_value *out_values,
                        uint32_t *out_count) {
    assert(limits->values > 0);
    if (size == 0 || size < r->need)
        return 0;
    bool afresh = r->at == 0;
    int whole = response_walk(r, limits, data, size, afresh ? out_values : NULL);
    if (whole <= 0)
        return whole;
    ptrdiff_t used = (ptrdiff_t)r->at;
    uint32_t count = r->count;
    *r = (struct response){ 0 };
    if (!afresh) // it is complete now: reads it again from the beginning for the values
        return response_read(r, limits, data, size, out_values, out_count);
    *out_count = count;
    return used;
}

// ---- Looking into a reply ---------------------------------------------------------------------

static bool response_is_text(const struct response_value *v, mr_bytes text) {
    return (v->type == RESPONSE_BULK || v->type == RESPONSE_SIMPLE) && bytes_equal(v->bytes, text);
}

const struct response_value *response_field(const struct response_value *map, const char *name) {
    if (map->type != RESPONSE_MAP && map->type != RESPONSE_ARRAY)
        return NULL;
    uint32_t at = 1;
    for (uint32_t i = 0; i + 1 < map->count; i += 2) {
        uint32_t value = response_skip(map, at);
        if (response_is_text(&map[at], mr_str(name)))
            return &map[value];
        at = response_skip(map, value);
    }
    return NULL;
}
