// See record_text.h. Both forms step through the values of a record; the policy of a stage, the
// reasons of a failure and the body follow.
#include "cli/store/record_text.h"

#include "cli/json.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_about_stage(const struct record *r) {
    return r->kind == RECORD_STAGE;
}

// 0 is "none" for numbers of a record. Counters of a stage or source are 0 as any other number.
static bool is_none(const struct record_value *v) {
    switch (v->type) {
    case field_id:
    case field_u64:
    case field_hex:
    case field_number:
    case field_small:
    case field_time:
    case field_flag:
        return !v->number && !v->counter;
    case field_stage:
    case field_total:
        return !v->number;
    case field_bytes:
        return !v->bytes.size;
    case field_shard:
    case field_present:
    case field_status:
    case field_missed:
        return false;
    case field_hash:
    case field_bitmap:
        return true;
    }
    return true;
}

// An epic that ended without a push has a total that is no number.
static uint64_t total_of(const struct record_value *v) {
    return v->number == EPIC_EMPTY ? 0 : v->number;
}

// ---- Words --------------------------------------------------------------------------------------

// A stage is printed by its name, but by its number where the record gives it that name, or where
// the name is not known.
static void store_record_text_print_stage(const struct dump_entry *e) {
    if (e->stage.size && !is_about_stage(e->record))
        printf("stage %.*s", (int)e->stage.size, (const char *)e->stage.data);
    else
        printf("stage %" PRIu32, e->record->stage);
}

static void print_value(const struct dump_entry *e, const struct record_value *v) {
    char time[TIME_WORDS];
    switch (v->type) {
    case field_id:
        printf("%s %" PRIu64, strcmp(v->name, "id") == 0 ? "job" : v->name, v->number);
        break;
    case field_u64:
    case field_number:
    case field_small:
    case field_shard:
        printf("%s %" PRIu64, v->name, v->number);
        break;
    case field_total:
        printf("%s %" PRIu64, v->name, total_of(v));
        break;
    case field_hex:
        printf("%s %016" PRIx64, v->name, v->number);
        break;
    case field_stage:
        store_record_text_print_stage(e);
        break;
    case field_flag:
    case field_present:
        printf("%s", v->name);
        break;
    case field_time:
        printf("%s %s", v->name, time_words(time, v->number, false));
        break;
    case field_status:
        printf("%s", job_status_name((enum job_status)v->number));
        break;
    case field_missed:
        printf("%s %s", v->name, missed_name((enum missed)v->number));
        break;
    case field_bytes:
        printf("%s ", v->name);
        print_quoted(v->bytes);
        break;
    case field_hash:
    case field_bitmap:
        break;
    }
}

// Counters that are 0 are left out here, too.
static void print_values(const struct dump_entry *e) {
    struct record_value v;
    const char *before = "";
    for (size_t at = 0; record_next_value(e->record, &at, &v);) {
        bool is_zero = v.counter && !v.number;
        if (is_none(&v) || is_zero)
            continue;
        printf("%s", before);
        print_value(e, &v);
        before = ", ";
    }
}

// Only what is not at its default.
static void store_record_text_print_policy(const struct policy *policy) {
    struct policy usual = policy_default();
    const struct policy_row *row;
    char value[POLICY_TEXT], other[POLICY_TEXT];
    for (size_t i = 0; (row = policy_row(i)) != NULL; i++) {
        policy_text(policy, row, value, sizeof value);
        policy_text(&usual, row, other, sizeof other);
        if (strcmp(value, other) != 0)
            printf(", %s %s", row->name, value);
    }
}

static void print_last_reason(mr_bytes body) {
    struct reason last = { 0 }, next;
    for (size_t at = 0; reasons_next(body, &at, &next);)
        last = next;
    printf(", reason ");
    print_quoted(last.text);
}

// META stands behind the body of a job.
static uint32_t meta_size_of(const struct record *r) {
    return r->kind == RECORD_SCHEDULE ? r->about->schedule.meta_size : r->meta_size;
}

static uint32_t size_without_meta(const struct dump_entry *e) {
    return e->body_size -
           (meta_size_of(e->record) < e->body_size ? meta_size_of(e->record) : e->body_size);
}

static mr_bytes dumped_body(const struct dump_entry *e) {
    return (mr_bytes){ e->body.data, size_without_meta(e) };
}

static mr_bytes dumped_meta(const struct dump_entry *e) {
    return bytes_tail(e->body, e->body.size - size_without_meta(e));
}

static void print_body(const struct dump_entry *e) {
    const char *name = record_body_name(e->record->kind);
    char size[SIZE_WORDS];
    if (!name)
        return;
    printf(", %s ", name);
    if (!e->with_body) {
        printf("%s", size_words(size, size_without_meta(e)));
        return;
    }
    print_quoted(dumped_body(e));
    if (meta_size_of(e->record)) {
        printf(", meta ");
        print_quoted(dumped_meta(e));
    }
}

void record_print(const struct dump_entry *e) {
    const struct record *r = e->record;
    char time[TIME_WORDS];
    if (e->shards > 1)
        printf("%2" PRIu32 " ", e->shard);
    printf("%10" PRIu64 "  %s  %-6s  ", e->at, time_words(time, r->time_ms, false),
           record_kind_name(r->kind));
    print_values(e);
    if (is_about_stage(r))
        store_record_text_print_policy(&r->about->stage.policy);
    if (r->kind == RECORD_FAIL)
        print_last_reason(e->body);
    print_body(e);
    printf("%s\n", r->copy ? " (copy)" : "");
}

// ---- JSON ---------------------------------------------------------------------------------------

static void store_record_text_json_stage(struct json *j, const struct dump_entry *e) {
    if (e->stage.size)
        json_bytes(j, "stage", e->stage);
    if (!e->stage.size || is_about_stage(e->record))
        json_number(j, "stage-number", e->record->stage);
}

static void json_value(struct json *j, const struct dump_entry *e, const struct record_value *v) {
    char hex[17];
    switch (v->type) {
    case field_id:
        json_id(j, v->name, v->number);
        break;
    case field_u64:
    case field_number:
    case field_small:
    case field_shard:
        json_number(j, v->name, v->number);
        break;
    case field_total:
        json_number(j, v->name, total_of(v));
        break;
    case field_hex:
        (void)snprintf(hex, sizeof hex, "%016" PRIx64, v->number);
        json_text(j, v->name, hex);
        break;
    case field_stage:
        store_record_text_json_stage(j, e);
        break;
    case field_flag:
    case field_present:
        json_flag(j, v->name, v->number);
        break;
    case field_time:
        json_time(j, v->name, v->number);
        break;
    case field_status:
        json_text(j, v->name, job_status_name((enum job_status)v->number));
        break;
    case field_missed:
        json_text(j, v->name, missed_name((enum missed)v->number));
        break;
    case field_bytes:
        json_bytes(j, v->name, v->bytes);
        break;
    case field_hash:
    case field_bitmap:
        break;
    }
}

static void json_policy(struct json *j, const struct policy *policy) {
    char value[POLICY_TEXT];
    const char *name;
    json_open(j, "policy", '{');
    for (size_t i = 0; (name = policy_get(policy, i, value, sizeof value)); i++)
        json_text(j, name, value);
    json_close(j, '}');
}

static void json_reasons(struct json *j, mr_bytes body) {
    struct reason r;
    json_open(j, "reasons", '[');
    for (size_t at = 0; reasons_next(body, &at, &r);) {
        json_open(j, NULL, '{');
        json_number(j, "attempt", r.attempt);
        json_time(j, "time", r.time_ms);
        json_bytes(j, "text", r.text);
        if (r.output.size)
            json_bytes(j, "output", r.output);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_body(struct json *j, const struct dump_entry *e) {
    const char *name = record_body_name(e->record->kind);
    if (name)
        json_number(j, "size", size_without_meta(e));
    if (name && e->with_body)
        json_bytes(j, name, dumped_body(e));
    if (meta_size_of(e->record) && e->with_body)
        json_bytes(j, "meta", dumped_meta(e));
}

void record_json(const struct dump_entry *e) {
    const struct record *r = e->record;
    struct record_value v;
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    if (e->shards > 1)
        json_number(&j, "shard", e->shard);
    json_number(&j, "position", e->at);
    json_time(&j, "time", r->time_ms);
    json_text(&j, "kind", record_kind_name(r->kind));
    json_flag(&j, "copy", r->copy);
    for (size_t at = 0; record_next_value(r, &at, &v);)
        if (!is_none(&v))
            json_value(&j, e, &v);
    if (is_about_stage(r))
        json_policy(&j, &r->about->stage.policy);
    if (r->kind == RECORD_FAIL)
        json_reasons(&j, e->body);
    json_body(&j, e);
    json_close(&j, '}');
    json_end(&j);
}
