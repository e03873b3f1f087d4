// The built-in steps: a line in, lines out. They have no state and run inside the operators before
// them.
#include "base/bytes.h"
#include "cli/flow/flow.h"
#include "cli/output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <stdlib.h>

int step_fail(mr_flow_out *out, mr_pair pair, int code, const char *format, ...) {
    char why[300], sentence[sizeof why + 2 * LINE_SHOWN + 40], line[LINE_SHOWN], key[LINE_SHOWN];
    va_list values;
    va_start(values, format);
    vsnprintf(why, sizeof why, format, values);
    va_end(values);
    int used = snprintf(sentence, sizeof sentence, "%s; the line is '%s'", why,
                        line_shown(line, pair.value));
    if (pair.key.size)
        snprintf(sentence + used, sizeof sentence - (size_t)used, ", its key '%s'",
                 line_shown(key, pair.key));
    mr_flow_set_reason(out, sentence);
    mr_flow_set_key(out, pair.key);
    return code;
}

int actor_give_up(struct actor *a, const char *why) {
    struct flow *f = a->flow;
    if (!atomic_exchange(&f->gives_up, true)) {
        if (*why)
            snprintf(f->why, sizeof f->why, "%s: %s", a->title, why);
        atomic_store(&f->failed, true);
    }
    return MR_EBUSY;
}

static int emit(struct actor *a, mr_flow_out *out, mr_bytes key, mr_bytes line) {
    a->out++;
    return mr_flow_emit(out, key, line);
}

// ---- Keys and values --------------------------------------------------------------------------

static const mr_bytes one_for_all = { "all", 3 };

// The key that the line has from here on; that of `pair` if the node does not set one.
static int key_of(const struct actor *a, mr_pair pair, struct buffer *room, mr_bytes *out) {
    const struct flow_part *key = &a->node->key;
    if (key->keys.from != KEY_NONE)
        return keys_look(&key->keys, pair.value, room, out);
    *out = key->all ? one_for_all : pair.key;
    return 0;
}

int step_key(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    struct buffer room = { 0 };
    mr_bytes key;
    bool crash = a->node->verb == VERB_CRASH; // others count lines elsewhere
    a->in += crash || a->node->kind == KIND_SINK;
    a->out += crash;
    int err = key_of(a, pair, &room, &key);
    if (err >= 0)
        err = mr_flow_emit(out, key, pair.value);
    buffer_finish(&room);
    return err;
}

int step_plain(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    a->in++;
    return mr_flow_emit(out, (mr_bytes){ 0 }, pair.value);
}

// Whether an attempt fails is decided by node, job and attempt; it fails after it has emitted, as a
// process that crashes before its commit.
int step_crash(mr_pair pair, mr_flow_out *out, void *arg) {
    const struct actor *a = arg;
    const mr_job *job = mr_flow_job(out);
    uint64_t node = (uint64_t)(a->node - a->flow->plan->nodes);
    uint64_t of[3] = { node, mr_job_id(job), mr_job_attempt(job) };
    double chance = (double)(bytes_hash(bytes_of(of, sizeof of), 0) >> 11) * 0x1p-53;
    char reason[80];
    int err = mr_flow_emit(out, pair.key, pair.value);
    if (err < 0 || chance >= a->node->chance)
        return err;
    snprintf(reason, sizeof reason, "it crashed, which it does with probability %g",
             a->node->chance);
    mr_flow_set_reason(out, reason);
    return MR_EAGAIN;
}

// ---- Lines into lines -------------------------------------------------------------------------

static bool flow_steps_is_word(uint8_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 0x80;
}

int step_words(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    const uint8_t *p = pair.value.data, *end = p + pair.value.size;
    int err = 0;
    a->in++;
    while (err >= 0 && p < end) {
        while (p < end && !flow_steps_is_word(*p))
            p++;
        const uint8_t *begin = p;
        while (p < end && flow_steps_is_word(*p))
            p++;
        if (p > begin)
            err = emit(a, out, pair.key, (mr_bytes){ begin, (size_t)(p - begin) });
    }
    return err;
}

int step_fields_each(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    mr_bytes rest = pair.value;
    int err = 0;
    a->in++;
    while (err >= 0 && rest.size) {
        mr_bytes field = field_find(1, rest);
        if (!field.size)
            break;
        const char *end = (const char *)rest.data + rest.size;
        rest.data = (const char *)field.data + field.size;
        rest.size = (size_t)(end - (const char *)rest.data);
        err = emit(a, out, pair.key, field);
    }
    return err;
}

int step_lines(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    const char *p = pair.value.data, *end = p + pair.value.size;
    int err = 0;
    a->in++;
    while (err >= 0 && p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        size_t size = (size_t)((line_end ? line_end : end) - p);
        err = emit(a, out, pair.key, (mr_bytes){ p, size });
        p += size + 1;
    }
    return err;
}

int step_fields(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    struct buffer line = { 0 };
    int err = 0;
    a->in++;
    for (size_t i = 0; err >= 0 && i < a->node->field_count; i++) {
        mr_bytes field = field_find(a->node->fields[i], pair.value);
        if (i)
            err = buffer_append(&line, "\t", 1);
        if (err >= 0 && field.size)
            err = buffer_append(&line, field.data, field.size);
    }
    if (err >= 0)
        err = emit(a, out, pair.key, buffer_bytes(&line));
    buffer_finish(&line);
    return err;
}

int step_regex(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    regmatch_t match[2];
    (void)out;
    a->in++;
    bool found = regex_find(&a->node->regex, pair.value, match);
    bool keeps = found == (a->node->how == HOW_REGEX);
    a->out += keeps;
    return keeps;
}

int step_drop(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    (void)pair;
    (void)out;
    a->in++;
    return 0;
}

// ---- Aggregates -------------------------------------------------------------------------------

enum { NUMBER_TEXT = 64 };

static mr_bytes last_field(mr_bytes line) {
    const char *text = line.data;
    size_t end = line.size;
    while (end && (text[end - 1] == ' ' || text[end - 1] == '\t'))
        end--;
    size_t begin = end;
    while (begin && text[begin - 1] != ' ' && text[begin - 1] != '\t')
        begin--;
    return (mr_bytes){ text + begin, end - begin };
}

static bool is_number(mr_bytes text) {
    char copy[NUMBER_TEXT], *end;
    if (!text.size || text.size >= sizeof copy)
        return false;
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    return copy[strspn(copy, "0123456789+-.eE")] == 0 && isfinite(strtod(copy, &end)) && !*end;
}

static int send_measured(struct actor *a, mr_flow_out *out, mr_bytes line, mr_pair found) {
    const struct flow_node *n = a->node;
    mr_bytes value = found.value;
    mr_pair whole = { found.key, line };
    char shown[LINE_SHOWN];
    if (!found.key.size)
        return step_fail(out, whole, MR_EDEAD, "there is no key (%s)",
                         n->key.text ? n->key.text : "of an earlier step");
    if (n->how == HOW_COUNT)
        return mr_flow_emit(out, found.key, (mr_bytes){ 0 });
    if (!is_number(value))
        return step_fail(out, whole, MR_EDEAD, "'%s' (%s) is no number", line_shown(shown, value),
                         n->value.text ? n->value.text : "the last field");
    return mr_flow_emit(out, found.key, value);
}

int step_measure(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    struct buffer key_room = { 0 }, value_room = { 0 };
    mr_pair found = { .value = last_field(pair.value) };
    a->in++;
    int err = key_of(a, pair, &key_room, &found.key);
    if (err >= 0 && a->node->value.text)
        err = keys_look(&a->node->value.keys, pair.value, &value_room, &found.value);
    if (err >= 0)
        err = send_measured(a, out, pair.value, found);
    buffer_finish(&key_room);
    buffer_finish(&value_room);
    return err;
}

static bool read_whole(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && *end == 0;
}

// So far is "COUNT SUM": the sum exact while it is whole, then a double.
int fold_mean(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *out, void *arg) {
    char before[2 * NUMBER_TEXT] = "0 0", text[NUMBER_TEXT], *end, now[2 * NUMBER_TEXT];
    (void)key;
    (void)arg;
    if (so_far.size && so_far.size < sizeof before) {
        memcpy(before, so_far.data, so_far.size);
        before[so_far.size] = 0;
    }
    memcpy(text, value.data, value.size); // step_measure has checked it
    text[value.size] = 0;
    uint64_t count = strtoull(before, &end, 10);
    const char *sum = *end ? end + 1 : end;
    int64_t whole_sum, whole, total;
    if (read_whole(sum, &whole_sum) && read_whole(text, &whole) &&
        !__builtin_add_overflow(whole_sum, whole, &total))
        snprintf(now, sizeof now, "%" PRIu64 " %" PRId64, count + 1, total);
    else
        snprintf(now, sizeof now, "%" PRIu64 " %.17g", count + 1,
                 strtod(sum, NULL) + strtod(text, NULL));
    return mr_flow_set(out, mr_str(now));
}

static mr_bytes mean_of(mr_bytes folded, char room[NUMBER_TEXT]) {
    char text[2 * NUMBER_TEXT], *end;
    snprintf(text, sizeof text, "%.*s", (int)folded.size, (const char *)folded.data);
    double count = strtod(text, &end);
    snprintf(room, NUMBER_TEXT, "%.15g", strtod(end, NULL) / count);
    return mr_str(room);
}

int step_result(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    char room[NUMBER_TEXT];
    struct buffer line = { 0 };
    mr_bytes value = a->node->how == HOW_MEAN ? mean_of(pair.value, room) : pair.value;
    int err = a->node->key.all ? 0 : buffer_append(&line, pair.key.data, pair.key.size);
    if (err >= 0 && !a->node->key.all)
        err = buffer_append(&line, "\t", 1);
    if (err >= 0)
        err = buffer_append(&line, value.data, value.size);
    if (err >= 0)
        err = emit(a, out, pair.key, buffer_bytes(&line));
    buffer_finish(&line);
    return err;
}

// ---- stdout -----------------------------------------------------------------------------------

// A line is printed before its commit, because printing cannot be undone. If stdout is closed the
// flow stops without a message.
int receive_print(mr_pair pair, uint64_t number, void *arg) {
    struct actor *a = arg;
    (void)number;
    a->in++;
    errno = 0;
    if (fwrite(pair.value.data, 1, pair.value.size, stdout) == pair.value.size &&
        putchar('\n') != EOF && fflush(stdout) != EOF)
        return 0;
    int failed = errno;
    __fpurge(stdout); // so that it is not reported again at the end
    clearerr(stdout);
    return actor_give_up(a, failed == EPIPE ? "" : strerror(failed));
}
