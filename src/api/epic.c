// Epics: numbered pushes that stay a window ahead of the workers, in two halves:
//
//     worked off │ half │ half │ not read yet
//                  512    512
//
// A half is begun when at most as many jobs are unended as the half before it holds: then
// everything before that half has ended, and the two halves together never have more than `ahead`
// jobs (and about as many bytes as are allowed). So a reader waits once for a half, not once a
// push, and for the workers only when they are that far behind. The engine wakes it: no thread
// polls.
//
// The reader of an epic keeps its window, because only it knows whether there can be workers. The
// window counts jobs that have not ended, so backlog and memory stay flat for any length.
#include "api/handle.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/limits.h"

#include <inttypes.h>

// What `own` holds.
enum {
    OWN_BEGUN,
    OWN_TOTAL, // of an epic that has ended, and 1; 0: it has not
    OWN_HALF,  // pushed in this half: jobs …
    OWN_BYTES, // … and bytes
};

static const uint64_t begun = UINT64_C(0x6570696362656775);

static int check_epic_name(const char *name, mr_bytes *out) {
    int err = check_pointer("the epic's name", name);
    if (err < 0)
        return err;
    mr_bytes bytes = mr_str(name);
    if (!bytes.size || bytes.size > EPIC_NAME_MOST)
        return error_set(MR_EINVAL, "an epic's name has 1 to %d bytes, not %zu", EPIC_NAME_MOST,
                         bytes.size);
    *out = bytes;
    return 0;
}

// Where an epic is: its stage, and its name there.
struct epic_place {
    mr_bytes stage, name;
};

static int check_place(const mr *m, const char *stage, const char *name, struct epic_place *out) {
    int err = check_open_engine(m);
    if (err >= 0)
        err = check_stage(stage, &out->stage);
    return err < 0 ? err : check_epic_name(name, &out->name);
}

static int check_epic(const mr *m, const mr_epic *e, struct epic_place *out) {
    int err = check_open_engine(m);
    if (err >= 0)
        err = check_pointer("the epic", e);
    if (err >= 0)
        err = check_place(m, e->stage, e->name, out);
    if (err >= 0 && e->own[OWN_BEGUN] != begun)
        err = error_set(MR_EINVAL, "epic '%s' was not begun: mr_epic_begin comes first", e->name);
    return err;
}

// ---- The window -------------------------------------------------------------------------------

static bool is_unbounded(const mr_epic *e) {
    return e->ahead == UINT32_MAX;
}

static uint64_t ahead_of(const mr_epic *e) {
    return e->ahead ? e->ahead : EPIC_AHEAD;
}

static uint64_t half_of(const mr_epic *e) {
    return ahead_of(e) > 1 ? ahead_of(e) / 2 : 1;
}

static uint64_t half_bytes_of(const mr_epic *e) {
    return (e->ahead_bytes ? e->ahead_bytes : EPIC_AHEAD_BYTES) / 2;
}

static bool half_is_full(const mr_epic *e) {
    return !is_unbounded(e) &&
           (e->own[OWN_HALF] >= half_of(e) || e->own[OWN_BYTES] >= half_bytes_of(e));
}

static int64_t left_of(const mr_epic *e) {
    uint64_t other = ahead_of(e) - half_of(e);
    return (int64_t)(e->own[OWN_HALF] < other ? e->own[OWN_HALF] : other);
}

static int error_behind(mr *m, const mr_epic *e, const struct epic_place *p) {
    mr_epic_info info;
    int err = m->engine->impl->epic(m->engine, p->stage, p->name, &info);
    if (err < 0)
        return err;
    return error_set(MR_EFULL, "%" PRIu64 " jobs of epic '%s' wait for workers of stage '%s'%s%s",
                     info.waiting + info.running, e->name, info.stage, *info.held_by ? ": " : "",
                     info.held_by);
}

// Waits until the next half may be begun. An epic that is not known yet has nothing to wait for.
static int half_begin(mr *m, mr_epic *e, const struct epic_place *p, int64_t wait_ms) {
    mr_epic_info info;
    int err = m->engine->impl->epic_wait(m->engine, p->stage, p->name, left_of(e), e->expected,
                                         wait_ms, &info);
    if (err == MR_EGONE && e->next > 1)
        return error_set(err, "epic '%s' was dropped while it was pushed", e->name);
    if (err == MR_EAGAIN)
        return error_behind(m, e, p);
    if (err < 0 && err != MR_EGONE)
        return err;
    e->own[OWN_HALF] = e->own[OWN_BYTES] = 0;
    return 0;
}

// ---- Pushing ----------------------------------------------------------------------------------

int mr_epic_begin(mr *m, mr_epic *e) {
    struct epic_place p;
    mr_epic_info info = { .resume = 1, .total = -1 };
    int err = check_pointer("the epic", e);
    if (err >= 0)
        err = check_place(m, e->stage, e->name, &p);
    if (err >= 0)
        err = m->engine->impl->epic(m->engine, p.stage, p.name, &info);
    if (err < 0 && err != MR_EGONE)
        return err;
    e->next = info.resume;
    e->own[OWN_BEGUN] = begun;
    e->own[OWN_TOTAL] = (uint64_t)(info.total + 1);
    e->own[OWN_HALF] = half_of(e); // another process may have filled it: the first push finds out
    e->own[OWN_BYTES] = 0;
    return 0;
}

static int64_t time_left(int64_t wait_ms, uint64_t since_ms) {
    int64_t passed_ms = (int64_t)(monotonic_ms() - since_ms);
    return wait_ms < 0 ? wait_ms : passed_ms < wait_ms ? wait_ms - passed_ms : 0;
}

static uint64_t item_size(const mr_item *i) {
    return i->key.size + i->once.size + i->body.size;
}

// How many items fit into this half: at least one.
static size_t half_takes(const mr_epic *e, const mr_item *items, size_t count) {
    uint64_t jobs = e->own[OWN_HALF], bytes = e->own[OWN_BYTES];
    size_t n = 0;
    do
        bytes += item_size(&items[n++]);
    while (n < count && (is_unbounded(e) || (jobs + n < half_of(e) && bytes < half_bytes_of(e))));
    return n;
}

static void count_pushed(mr_epic *e, const mr_item *items, size_t n) {
    e->next += n;
    e->own[OWN_HALF] += n;
    for (size_t i = 0; i < n; i++)
        e->own[OWN_BYTES] += item_size(&items[i]);
}

// Pushes until one is not accepted. Returns how many were; `out_err` says why not all.
static size_t push_items(mr *m, mr_epic *e, const struct epic_place *p, const mr_item *items,
                         size_t count, const mr_push_options *all, mr_id *out_ids, int *out_err) {
    uint64_t since_ms = all->room_ms > 0 ? monotonic_ms() : 0;
    mr_push_options o = *all;
    size_t done = 0;
    int err = 0;
    while (done < count && err >= 0) {
        o.room_ms = time_left(all->room_ms, since_ms);
        if (half_is_full(e) && (err = half_begin(m, e, p, o.room_ms)) < 0)
            break;
        struct push_number first = { p->name, e->next, true };
        size_t some = half_takes(e, items + done, count - done), n = 0;
        o.room_ms = time_left(all->room_ms, since_ms);
        err = m->engine->impl->push_many(m->engine, p->stage, items + done, some, &o, &first,
                                         out_ids ? out_ids + done : NULL, &n);
        if (err < 0)
            break;
        count_pushed(e, items + done, n);
        done += n;
    }
    *out_err = err;
    return done;
}

static int check_epic_end(const mr_epic *e, size_t more) {
    uint64_t total = e->own[OWN_TOTAL] - 1;
    if (!e->own[OWN_TOTAL] || e->next + more - 1 <= total)
        return 0;
    return error_set(MR_EINVAL, "epic '%s' has ended with number %" PRIu64, e->name, total);
}

int mr_epic_push(mr *m, mr_epic *e, mr_bytes body, const mr_push_options *o, mr_id *out) {
    struct epic_place p;
    int err = check_epic(m, e, &p);
    if (err >= 0)
        err = check_push_options(&o);
    if (err >= 0)
        err = check_bytes("body", body);
    if (err >= 0)
        err = check_epic_end(e, 1);
    if (err < 0)
        return err;
    mr_item item = { .key = o->key, .once = o->once, .body = body };
    mr_id id;
    push_items(m, e, &p, &item, 1, o, &id, &err);
    if (err >= 0 && out)
        *out = id;
    return err;
}

int mr_epic_push_many(mr *m, mr_epic *e, const mr_item *items, size_t n, const mr_push_options *all,
                      mr_id *out_ids, size_t *out_n) {
    struct epic_place p;
    int err = check_epic(m, e, &p);
    if (err >= 0)
        err = check_push_options(&all);
    if (err >= 0)
        err = check_items(items, n, all);
    if (err >= 0)
        err = check_pointer("out_n", out_n);
    if (err >= 0)
        err = check_epic_end(e, n);
    if (err < 0)
        return err;
    size_t done = push_items(m, e, &p, items, n, all, out_ids, &err);
    bool unsure = err == MR_ESTOPPED || err == MR_ENET;
    if (err < 0 && (done == 0 || unsure))
        return err;
    *out_n = done;
    return 0;
}

// ---- The end ----------------------------------------------------------------------------------

int mr_epic_skip(mr *m, mr_epic *e) {
    struct epic_place p;
    int err = check_epic(m, e, &p);
    if (err >= 0)
        err = check_epic_end(e, 1);
    if (err >= 0)
        err = m->engine->impl->epic_skip(m->engine, p.stage, p.name, e->next);
    if (err >= 0)
        e->next++;
    return err;
}

// Numbers are missing if the epic was dropped and a later push began it anew.
static int check_all_there(mr *m, const mr_epic *e, const struct epic_place *p) {
    mr_epic_info info = { .resume = 1 };
    int err = m->engine->impl->epic(m->engine, p->stage, p->name, &info);
    if (err < 0 && err != MR_EGONE)
        return err;
    if (info.resume < e->next)
        return error_set(MR_EGONE, "epic '%s' was dropped while it was pushed", e->name);
    return 0;
}

int mr_epic_end(mr *m, mr_epic *e) {
    struct epic_place p;
    int err = check_epic(m, e, &p);
    if (err < 0)
        return err;
    if (e->own[OWN_TOTAL] && e->own[OWN_TOTAL] != e->next)
        return error_set(MR_EINVAL, "epic '%s' has ended with number %" PRIu64 ", not %" PRIu64,
                         e->name, e->own[OWN_TOTAL] - 1, e->next - 1);
    if ((err = check_all_there(m, e, &p)) < 0)
        return err;
    if ((err = m->engine->impl->epic_end(m->engine, p.stage, p.name, e->next - 1)) < 0)
        return err;
    e->own[OWN_TOTAL] = e->next;
    return 0;
}

// ---- Looking ----------------------------------------------------------------------------------

int mr_epic_look(mr *m, const char *stage, const char *name, mr_epic_info *out) {
    struct epic_place p;
    int err = check_place(m, stage, name, &p);
    if (err >= 0)
        err = check_pointer("the place for the answer", out);
    return err < 0 ? err : m->engine->impl->epic(m->engine, p.stage, p.name, out);
}

int mr_epic_wait(mr *m, const char *stage, const char *name, int64_t wait_ms, mr_epic_info *out) {
    struct epic_place p;
    mr_epic_info info;
    int err = check_place(m, stage, name, &p);
    if (err >= 0)
        err = check_wait("wait_ms", wait_ms);
    if (err >= 0)
        err = m->engine->impl->epic_wait(m->engine, p.stage, p.name, -1, 0, wait_ms, &info);
    if (err < 0)
        return err;
    if (info.dead)
        return error_set(MR_EDEAD, "%" PRIu64 " of the %" PRIu64 " jobs of epic '%s' are dead",
                         info.dead, info.accepted, name);
    if (out)
        *out = info;
    return 0;
}

int mr_epic_then(mr *m, const char *stage, const char *name, const char *then_stage, mr_bytes key,
                 mr_bytes body) {
    struct epic_place p;
    struct emit then = { .body = body, .job.key = key };
    int err = check_place(m, stage, name, &p);
    if (err == 0)
        err = check_stage(then_stage, &then.stage);
    return err < 0 ? err : m->engine->impl->epic_then(m->engine, p.stage, p.name, &then);
}

int mr_epic_cancel(mr *m, const char *stage, const char *name) {
    struct epic_place p;
    int err = check_place(m, stage, name, &p);
    return err < 0 ? err : m->engine->impl->epic_cancel(m->engine, p.stage, p.name);
}

int mr_epic_forget(mr *m, const char *stage, const char *name, int64_t after_ms) {
    struct epic_place p;
    int err = check_place(m, stage, name, &p);
    if (err == 0 && after_ms < 0)
        err = error_set(MR_EINVAL, "an epic cannot be dropped before its end");
    return err < 0 ? err
                   : m->engine->impl->epic_forget(m->engine, p.stage, p.name, (uint64_t)after_ms);
}

int mr_epic_drop(mr *m, const char *stage, const char *name) {
    struct epic_place p;
    int err = check_place(m, stage, name, &p);
    return err < 0 ? err : m->engine->impl->epic_drop(m->engine, p.stage, p.name);
}
