// See record_text.h. Which fields a kind has is said once more here than in record.c, because here
// they are given their meaning.
#include "cli/record_text.h"

#include "cli/json.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// What an entry's body is called; NULL: the kind has none that people would read as it is.
static const char *body_name(enum record_kind kind) {
    switch (kind) {
    case RECORD_PUSH:
    case RECORD_JOB:
    case RECORD_OUTBOX:
    case RECORD_ARRIVAL:
        return "body";
    case RECORD_END:
        return "result";
    case RECORD_STATE:
        return "state";
    case RECORD_FAIL:
    case RECORD_RETRY:
    case RECORD_DROP:
    case RECORD_WANT:
    case RECORD_STAGE:
    case RECORD_SOURCE:
    case RECORD_SOURCE_OLD:
    case RECORD_SOURCE_DROP:
    case RECORD_ONCE:
    case RECORD_EPOCH:
    case RECORD_TRIM:
    case RECORD_LINK:
    case RECORD_LEASE:
    case RECORD_STAGE_DROP:
        return NULL;
    }
    return NULL;
}

// ---- In words ---------------------------------------------------------------------------------

static void print_time(const char *before, uint64_t ms) {
    char text[TIME_WORDS];
    printf("%s%s", before, time_words(text, ms, false));
}

static void print_job(const struct shown *s) {
    printf("job %" PRIu64, s->record->id);
    if (s->stage.size)
        printf(" of %.*s", (int)s->stage.size, (const char *)s->stage.data);
    else if (s->record->stage)
        printf(" of stage %" PRIu32, s->record->stage);
}

static void print_key(const struct shown *s) {
    if (!s->record->key.size)
        return;
    printf(", key ");
    print_quoted(s->record->key);
}

static void print_options(const struct record *r) {
    if (r->has_once)
        printf(", once");
    if (r->call)
        printf(", called");
    if (r->due_ms && r->status == JOB_DEAD)
        printf(", its channel halts");
    else if (r->due_ms && r->kind != RECORD_END)
        print_time(", due ", r->due_ms);
    if (r->deadline_ms)
        print_time(", deadline ", r->deadline_ms);
    if (r->attempts)
        printf(", at most %" PRIu32 " attempts", r->attempts);
    if (r->number && r->source)
        printf(", number %" PRIu64 " of source %" PRIu64, r->number, r->source);
}

static void print_body(const struct shown *s) {
    const char *name = body_name(s->record->kind);
    char size[SIZE_WORDS];
    bool is_job = s->record->kind == RECORD_PUSH || s->record->kind == RECORD_ARRIVAL;
    if (!name || (!s->body_size && !is_job))
        return;
    printf(s->record->kind == RECORD_STATE ? ", " : ", %s ", name);
    if (s->with_body)
        print_quoted(s->body);
    else
        printf("%s", size_words(size, s->body_size));
}

static void print_fail(const struct shown *s) {
    const struct record *r = s->record;
    printf("job %" PRIu64 " %s in attempt %" PRIu32, r->id,
           r->status == JOB_DEAD ? "died" : "failed", r->attempt);
    if (r->status == JOB_DEAD && r->due_ms)
        printf(", its channel halts");
    else if (r->due_ms)
        print_time(", again at ", r->due_ms);
    struct reason last = { 0 }, next;
    for (size_t at = 0; reasons_next(s->body, &at, &next);)
        last = next;
    printf(": ");
    print_quoted(last.text);
}

static void print_policy(const struct policy *policy) {
    struct policy usual = policy_default();
    char value[64], other[64];
    const char *name;
    for (size_t i = 0; (name = policy_get(policy, i, value, sizeof value)); i++) {
        policy_get(&usual, i, other, sizeof other);
        if (strcmp(value, other) != 0)
            printf(", %s %s", name, value);
    }
}

// A token is known to the store by a hash of its name.
static void print_maker(const struct record *r) {
    if (r->maker)
        printf(", made by token %016" PRIx64, r->maker);
}

static void print_stage(const struct record *r) {
    const struct record_stage *a = &r->about->stage;
    printf("stage %" PRIu32 " is %.*s: %" PRIu64 " pushed, %" PRIu64 " done, %" PRIu64
           " failed attempts",
           r->stage, (int)r->name.size, (const char *)r->name.data, a->pushed, a->done, a->failed);
    if (a->died)
        printf(", %" PRIu64 " died", a->died);
    if (a->expired)
        printf(", %" PRIu64 " expired", a->expired);
    if (a->cancelled)
        printf(", %" PRIu64 " cancelled", a->cancelled);
    printf("%s%s", a->paused ? ", paused" : "", a->draining ? ", draining" : "");
    print_policy(&a->policy);
    print_maker(r);
}

static void print_source(const struct record *r) {
    const struct record_source *a = &r->about->source;
    printf("%s %" PRIu64 " is ", a->epic ? "epic" : "source", r->source);
    print_quoted(r->name);
    printf(": %" PRIu64 " accepted, up to number %" PRIu64, a->accepted, a->highest);
    if (a->total)
        printf(" of %" PRIu64, a->total == EPIC_EMPTY ? 0 : a->total);
    if (a->epic)
        printf(", %" PRIu64 " done", a->done);
    if (a->dead)
        printf(", %" PRIu64 " dead", a->dead);
    print_maker(r);
}

static void print_state(const struct shown *s) {
    printf("state of ");
    print_quoted(s->record->key);
    printf(" of %.*s", (int)s->stage.size, s->stage.size ? (const char *)s->stage.data : "");
    if (!s->body_size)
        printf(" is deleted");
    print_body(s);
}

static void print_job_wholly(const struct shown *s) {
    const struct record *r = s->record;
    print_job(s);
    if (r->kind == RECORD_JOB || r->kind == RECORD_END)
        printf(" %s", job_status_name(r->status));
    if (r->attempt)
        printf(" after %" PRIu32 " failed attempt%s", r->attempt, r->attempt == 1 ? "" : "s");
    if (r->kind == RECORD_ARRIVAL)
        printf(", number %" PRIu64 " from shard %" PRIu32, r->number, r->shard);
    print_key(s);
    print_options(r);
    print_body(s);
}

static void print_outbox(const struct shown *s) {
    const struct record *r = s->record;
    printf("number %" PRIu64 " to shard %" PRIu32 ", for %.*s", r->number, r->shard,
           (int)s->stage.size, s->stage.size ? (const char *)s->stage.data : "");
    print_key(s);
    if (r->name.size) {
        printf(", once ");
        print_quoted(r->name);
    }
    print_options(r);
    print_body(s);
}

static void print_lease(const struct shown *s) {
    const struct record *r = s->record;
    printf("lease %" PRIx64 " up to ", r->serial);
    print_job(s);
    print_key(s);
    if (r->due_ms)
        print_time(", until ", r->due_ms);
    else
        printf(" is over");
}

static void print_words(const struct shown *s) {
    const struct record *r = s->record;
    switch (r->kind) {
    case RECORD_PUSH:
    case RECORD_JOB:
    case RECORD_END:
    case RECORD_ARRIVAL:
        print_job_wholly(s);
        break;
    case RECORD_OUTBOX:
        print_outbox(s);
        break;
    case RECORD_LINK:
        printf("shard %" PRIu32 ": accepted up to %" PRIu64 ", acknowledged up to %" PRIu64,
               r->shard, r->number, r->upto);
        break;
    case RECORD_STAGE_DROP:
        printf("stage %" PRIu32 " is forgotten", r->stage);
        break;
    case RECORD_LEASE:
        print_lease(s);
        break;
    case RECORD_FAIL:
        print_fail(s);
        break;
    case RECORD_RETRY:
        printf("job %" PRIu64 " waits again", r->id);
        break;
    case RECORD_DROP:
        printf("job %" PRIu64 " is dropped", r->id);
        break;
    case RECORD_WANT:
        printf("job %" PRIu64 " is wanted for good", r->id);
        break;
    case RECORD_STAGE:
        print_stage(r);
        break;
    case RECORD_SOURCE:
    case RECORD_SOURCE_OLD:
        print_source(r);
        break;
    case RECORD_SOURCE_DROP:
        printf("source %" PRIu64 " is forgotten", r->source);
        break;
    case RECORD_STATE:
        print_state(s);
        break;
    case RECORD_ONCE:
        print_job(s);
        printf(" is remembered by its once");
        break;
    case RECORD_EPOCH:
        printf("epoch %" PRIu64 ", ids below %" PRIu64 " may be in use", r->epoch, r->next_id);
        break;
    case RECORD_TRIM:
        printf("everything below %" PRIu64 " is given up", r->upto);
        break;
    }
}

void record_print(const struct shown *s) {
    char time[TIME_WORDS];
    if (s->shards > 1)
        printf("%2" PRIu32 " ", s->shard);
    printf("%10" PRIu64 "  %s  %-6s  ", s->at, time_words(time, s->record->time_ms, false),
           record_kind_name(s->record->kind));
    print_words(s);
    printf("%s\n", s->record->copy ? " (copy)" : "");
}

// ---- As JSON ----------------------------------------------------------------------------------

static void json_optional_time(struct json *j, const char *name, uint64_t ms) {
    if (ms)
        json_time(j, name, ms);
}

static void json_optional(struct json *j, const char *name, uint64_t number) {
    if (number)
        json_number(j, name, number);
}

static void json_job(struct json *j, const struct shown *s) {
    const struct record *r = s->record;
    bool job = r->kind == RECORD_JOB || r->kind == RECORD_END || r->kind == RECORD_FAIL;
    bool ended = r->kind == RECORD_END || r->kind == RECORD_ONCE;
    if (r->id)
        json_id(j, "id", r->id);
    if (s->stage.size)
        json_bytes(j, "stage", s->stage);
    if (r->key.size)
        json_bytes(j, "key", r->key);
    if (job)
        json_text(j, "status", job_status_name(r->status));
    json_optional(j, "attempt", r->attempt);
    json_optional(j, "attempts", r->attempts);
    bool lease = r->kind == RECORD_LEASE;
    json_optional_time(j, ended ? "ended" : lease ? "began" : "pushed", r->pushed_ms);
    if (r->due_ms && r->status == JOB_DEAD)
        json_flag(j, "halts", true); // what a due instant says of a dead job
    else
        json_optional_time(j, ended ? "pushed" : lease ? "until" : "due", r->due_ms);
    json_optional_time(j, "deadline", r->deadline_ms);
    if (r->has_once || (r->kind == RECORD_OUTBOX && r->name.size))
        json_flag(j, "once", true);
    if (r->call)
        json_flag(j, "call", true);
    json_optional(j, "source", r->source);
    json_optional(j, "number", r->number);
    bool linked = r->kind == RECORD_OUTBOX || r->kind == RECORD_ARRIVAL || r->kind == RECORD_LINK;
    if (linked)
        json_number(j, "shard", r->shard);
    if (r->kind == RECORD_OUTBOX && r->name.size)
        json_bytes(j, "name", r->name);
}

static void json_reasons(struct json *j, mr_bytes body) {
    struct reason r;
    json_open(j, "reasons", '[');
    for (size_t at = 0; reasons_next(body, &at, &r);) {
        json_open(j, NULL, '{');
        json_number(j, "attempt", r.attempt);
        json_time(j, "time", r.time_ms);
        json_bytes(j, "text", r.text);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void json_maker(struct json *j, const struct record *r) {
    char name[17];
    snprintf(name, sizeof name, "%016" PRIx64, r->maker);
    if (r->maker)
        json_text(j, "made-by", name);
}

static void json_about_stage(struct json *j, const struct record *r) {
    const struct record_stage *a = &r->about->stage;
    char value[64];
    const char *name;
    json_number(j, "stage-number", r->stage);
    json_number(j, "pushed", a->pushed);
    json_number(j, "done", a->done);
    json_number(j, "failed", a->failed);
    json_number(j, "dead", a->died);
    json_number(j, "expired", a->expired);
    json_number(j, "cancelled", a->cancelled);
    json_flag(j, "paused", a->paused);
    json_flag(j, "draining", a->draining);
    json_open(j, "policy", '{');
    for (size_t i = 0; (name = policy_get(&a->policy, i, value, sizeof value)); i++)
        json_text(j, name, value);
    json_close(j, '}');
    json_maker(j, r);
}

static void json_about_source(struct json *j, const struct record *r) {
    const struct record_source *a = &r->about->source;
    json_bytes(j, "name", r->name);
    json_flag(j, "epic", a->epic);
    json_number(j, "highest", a->highest);
    if (a->total)
        json_number(j, "total", a->total == EPIC_EMPTY ? 0 : a->total);
    json_number(j, "accepted", a->accepted);
    json_number(j, "done", a->done);
    json_number(j, "dead", a->dead);
    json_number(j, "cancelled", a->cancelled);
    json_number(j, "expired", a->expired);
    json_maker(j, r);
}

void record_json(const struct shown *s) {
    const struct record *r = s->record;
    const char *body = body_name(r->kind);
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    if (s->shards > 1)
        json_number(&j, "shard", s->shard);
    json_number(&j, "position", s->at);
    json_time(&j, "time", r->time_ms);
    json_text(&j, "kind", record_kind_name(r->kind));
    json_flag(&j, "copy", r->copy);
    json_job(&j, s);
    if (r->kind == RECORD_STAGE)
        json_about_stage(&j, r);
    if (r->kind == RECORD_SOURCE || r->kind == RECORD_SOURCE_OLD)
        json_about_source(&j, r);
    if (r->kind == RECORD_FAIL)
        json_reasons(&j, s->body);
    json_optional(&j, "epoch", r->epoch);
    if (r->next_id)
        json_id(&j, "next-id", r->next_id);
    json_optional(&j, "upto", r->upto);
    if (body)
        json_number(&j, "size", s->body_size);
    if (body && s->with_body)
        json_bytes(&j, body, s->body);
    json_close(&j, '}');
    json_end(&j);
}
