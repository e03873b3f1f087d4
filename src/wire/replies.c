// See replies.h.
#include "wire/replies.h"

#include "base/bytes.h"
#include "wire/number.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- The tables -------------------------------------------------------------------------------

#define FIELD(where, member, kind, name, about)                                                    \
    { name, REPLY_##kind, offsetof(struct where, member), about },
#define TABLE(fields)                                                                              \
    { fields, sizeof(fields) / sizeof *(fields) }

#define STAGE_FIELD(from, ...) FIELD(stage_reply, __VA_ARGS__)
#define CHANNEL_FIELD(from, ...) FIELD(channel_reply, __VA_ARGS__)
#define GROUP_FIELD(from, ...) FIELD(group_reply, __VA_ARGS__)
#define JOB_FIELD(from, ...) FIELD(job_reply, __VA_ARGS__)
#define REASON_FIELD(from, ...) FIELD(reason_reply, __VA_ARGS__)
#define PROGRESS_FIELD(from, ...) FIELD(progress_reply, __VA_ARGS__)
#define GRANT_FIELD(from, ...) FIELD(grant_reply, __VA_ARGS__)
#define EPIC_FIELD(from, ...) FIELD(epic_reply, __VA_ARGS__)
#define SCHEDULE_FIELD(from, ...) FIELD(schedule_reply, __VA_ARGS__)
#define WORKER_FIELD(from, ...) FIELD(worker_reply, __VA_ARGS__)
#define NODE_FIELD(from, ...) FIELD(node_reply, __VA_ARGS__)
#define SHARD_FIELD(from, ...) FIELD(shard_reply, __VA_ARGS__)
#define CLUSTER_FIELD(from, ...) FIELD(cluster_reply, __VA_ARGS__)
#define HELLO_FIELD(from, ...) FIELD(hello_reply, __VA_ARGS__)
#define DOCS_FIELD(from, ...) FIELD(docs_reply, __VA_ARGS__)
#define ARGUMENT_FIELD(from, ...) FIELD(argument_reply, __VA_ARGS__)

static const struct reply_field stage_fields[] = { STAGE_FIELDS(STAGE_FIELD) };
static const struct reply_field channel_fields[] = { CHANNEL_FIELDS(CHANNEL_FIELD) };
static const struct reply_field group_fields[] = { GROUP_FIELDS(GROUP_FIELD) };
static const struct reply_field job_fields[] = { JOB_FIELDS(JOB_FIELD) JOB_BODY_FIELDS(JOB_FIELD) };
static const struct reply_field reason_fields[] = { REASON_FIELDS(REASON_FIELD) };
static const struct reply_field progress_fields[] = { PROGRESS_FIELDS(PROGRESS_FIELD) };
static const struct reply_field grant_fields[] = { GRANT_FIELDS(GRANT_FIELD) };
static const struct reply_field epic_fields[] = { EPIC_FIELDS(EPIC_FIELD) };
static const struct reply_field epics_fields[] = { EPIC_NAME_FIELD(EPIC_FIELD)
                                                       EPIC_FIELDS(EPIC_FIELD) };
static const struct reply_field schedule_fields[] = { SCHEDULE_FIELDS(SCHEDULE_FIELD)
                                                          SCHEDULE_MORE_FIELDS(SCHEDULE_FIELD) };
static const struct reply_field worker_fields[] = { WORKER_FIELDS(WORKER_FIELD) };
static const struct reply_field node_fields[] = { NODE_FIELDS(NODE_FIELD) };
static const struct reply_field shard_fields[] = { SHARD_FIELDS(SHARD_FIELD) };
static const struct reply_field cluster_fields[] = { CLUSTER_FIELDS(CLUSTER_FIELD) };
static const struct reply_field hello_fields[] = { HELLO_FIELDS(HELLO_FIELD) };
static const struct reply_field docs_fields[] = { DOCS_FIELDS(DOCS_FIELD) };
static const struct reply_field argument_fields[] = { ARGUMENT_FIELDS(ARGUMENT_FIELD) };

const struct reply_table stage_replies = TABLE(stage_fields);
const struct reply_table channel_replies = TABLE(channel_fields);
const struct reply_table group_replies = TABLE(group_fields);
const struct reply_table job_replies = TABLE(job_fields);
const struct reply_table reason_replies = TABLE(reason_fields);
const struct reply_table progress_replies = TABLE(progress_fields);
const struct reply_table grant_replies = TABLE(grant_fields);
const struct reply_table epic_replies = TABLE(epic_fields);
const struct reply_table epics_replies = TABLE(epics_fields);
const struct reply_table schedule_replies = TABLE(schedule_fields);
const struct reply_table worker_replies = TABLE(worker_fields);
const struct reply_table node_replies = TABLE(node_fields);
const struct reply_table shard_replies = TABLE(shard_fields);
const struct reply_table cluster_replies = TABLE(cluster_fields);
const struct reply_table hello_replies = TABLE(hello_fields);
const struct reply_table docs_replies = TABLE(docs_fields);
const struct reply_table argument_replies = TABLE(argument_fields);

const struct reply_field *reply_field_at(const struct reply_table *t, size_t offset) {
    size_t i = 0;
    while (i < t->count && t->fields[i].offset != offset)
        i++;
    assert(i < t->count);
    return &t->fields[i];
}

bool reply_is_ms(const struct reply_field *f) {
    size_t size = strlen(f->name);
    return size > 3 && strcmp(f->name + size - 3, "-ms") == 0;
}

// ---- Writing ----------------------------------------------------------------------------------

// Rates are measured over seconds: they have no more digits than these.
static double to_thousandth(double per_s) {
    return floor(per_s * 1000 + 0.5) / 1000;
}

static void names_write(struct reply *r, const struct reply_names *names) {
    reply_array(r, names->count);
    for (size_t i = 0; i < names->count; i++)
        reply_bulk(r, names->list[i]);
}

static void value_write(struct reply *r, enum reply_kind kind, const void *at) {
    switch (kind) {
    case REPLY_bytes:
        reply_bulk(r, *(const mr_bytes *)at);
        break;
    case REPLY_count:
        reply_integer(r, (int64_t) * (const uint64_t *)at);
        break;
    case REPLY_small:
        reply_integer(r, *(const uint32_t *)at);
        break;
    case REPLY_number:
        reply_integer(r, *(const int64_t *)at);
        break;
    case REPLY_rate:
        reply_double(r, to_thousandth(*(const double *)at));
        break;
    case REPLY_flag:
        reply_integer(r, *(const bool *)at);
        break;
    case REPLY_id:
        reply_id(r, *(const uint64_t *)at);
        break;
    case REPLY_names:
        names_write(r, at);
        break;
    case REPLY_entry:
        assert(false); // of a grant, which the server writes itself
        break;
    case REPLY_other: {
        const struct reply_other *other = at;
        other->write(other->arg);
        break;
    }
    }
}

static const void *field_value(const struct reply_field *f, const void *from) {
    return (const char *)from + f->offset;
}

static bool is_left_out(const struct reply_field *f, const void *from) {
    return f->kind == REPLY_other && !((const struct reply_other *)field_value(f, from))->write;
}

void reply_write(struct reply *r, const struct reply_table *t, const void *from) {
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        count += !is_left_out(&t->fields[i], from);
    reply_map(r, count);
    for (size_t i = 0; i < t->count; i++) {
        const struct reply_field *f = &t->fields[i];
        if (is_left_out(f, from))
            continue;
        reply_bulk(r, mr_str(f->name));
        value_write(r, f->kind, field_value(f, from));
    }
}

// ---- Reading ----------------------------------------------------------------------------------

static bool reply_is_text(const struct response_value *v) {
    return v->type == RESPONSE_BULK || v->type == RESPONSE_SIMPLE;
}

static void integer_read(const struct response_value *v, enum reply_kind kind, void *to) {
    int64_t n = v->integer;
    if (v->type != RESPONSE_INTEGER)
        return;
    if (kind == REPLY_number)
        *(int64_t *)to = n;
    else if (kind == REPLY_count)
        *(uint64_t *)to = (uint64_t)n;
    else if (kind == REPLY_small)
        *(uint32_t *)to = (uint32_t)n;
    else
        *(bool *)to = n != 0;
}

// RESP2 sends it as a text.
static void rate_read(const struct response_value *v, double *to) {
    char text[64];
    if (v->type == RESPONSE_INTEGER)
        *to = (double)v->integer;
    if (v->type != RESPONSE_DOUBLE && !reply_is_text(v))
        return;
    (void)snprintf(text, sizeof text, "%.*s", (int)(v->bytes.size < 60 ? v->bytes.size : 60),
                   (const char *)v->bytes.data);
    *to = strtod(text, NULL);
}

static void reply_value_read(const struct response_value *v, enum reply_kind kind, void *to) {
    switch (kind) {
    case REPLY_bytes:
        if (reply_is_text(v))
            *(mr_bytes *)to = v->bytes;
        break;
    case REPLY_count:
    case REPLY_small:
    case REPLY_number:
    case REPLY_flag:
        integer_read(v, kind, to);
        break;
    case REPLY_rate:
        rate_read(v, to);
        break;
    case REPLY_id:
        if (reply_is_text(v))
            (void)number_parse(v->bytes, to); // 0 is no id
        break;
    case REPLY_names:
    case REPLY_entry:
        break;
    case REPLY_other:
        ((struct reply_other *)to)->value = v;
        break;
    }
}

// Both ends have the fields in the same order but for those that one of them does not know: the
// search begins behind the field that was found last.
static const struct reply_field *reply_field_find(const struct reply_table *t, mr_bytes name,
                                                  size_t *next) {
    for (size_t i = 0; i < t->count; i++) {
        const struct reply_field *f = &t->fields[(*next + i) % t->count];
        if (!bytes_equal(name, mr_str(f->name)))
            continue;
        *next = (*next + i + 1) % t->count;
        return f;
    }
    return NULL;
}

bool reply_read(const struct reply_table *t, const struct response_value *map, void *to) {
    if (map->type != RESPONSE_MAP && map->type != RESPONSE_ARRAY)
        return false;
    size_t next = 0;
    uint32_t at = 1;
    for (uint32_t i = 0; i + 1 < map->count; i += 2) {
        uint32_t value = response_skip(map, at);
        const struct reply_field *f =
            map[at].type == RESPONSE_BULK ? reply_field_find(t, map[at].bytes, &next) : NULL;
        if (f)
            reply_value_read(&map[value], f->kind, (char *)to + f->offset);
        at = response_skip(map, value);
    }
    return true;
}
