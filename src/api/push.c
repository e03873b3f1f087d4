// Pushing and calling: the checks, then the engine.
#include "api/handle.h"
#include "base/errors.h"
#include "base/mem.h"

static int check_push(const mr *m, const char *stage, mr_bytes body, const mr_push_options **o,
                      mr_bytes *out_stage) {
    int err = check_open_engine(m);
    if (err >= 0)
        err = check_stage(stage, out_stage);
    if (err >= 0)
        err = check_bytes("body", body);
    return err < 0 ? err : check_push_options(o);
}

int mr_push(mr *m, const char *stage, mr_bytes body, const mr_push_options *o, mr_id *out) {
    mr_bytes name;
    int err = check_push(m, stage, body, &o, &name);
    return err < 0 ? err : m->engine->impl->push(m->engine, name, body, o, out);
}

int check_items(const mr_item *items, size_t count, const mr_push_options *all) {
    if (!items && count)
        return error_set(MR_EINVAL, "%zu items at NULL", count);
    if (all->key.size || all->once.size)
        return error_set(MR_EINVAL, "key and once are each item's own: leave them empty in the "
                                    "options for all");
    for (size_t i = 0; i < count; i++) {
        int err = check_bytes("key of an item", items[i].key);
        if (err >= 0)
            err = check_bytes("once of an item", items[i].once);
        if (err >= 0)
            err = check_bytes("body of an item", items[i].body);
        if (err < 0)
            return err;
    }
    return 0;
}

int mr_push_many(mr *m, const char *stage, const mr_item *items, size_t n,
                 const mr_push_options *all, mr_id *out_ids, size_t *out_n) {
    mr_bytes name;
    int err = check_push(m, stage, (mr_bytes){ 0 }, &all, &name);
    if (err >= 0)
        err = check_items(items, n, all);
    if (err >= 0)
        err = check_pointer("out_n", out_n);
    if (err < 0)
        return err;
    if (n == 0) {
        *out_n = 0;
        return 0;
    }
    return m->engine->impl->push_many(m->engine, name, items, n, all, NULL, out_ids, out_n);
}

// ---- Results ----------------------------------------------------------------------------------

static int give_result(int err, struct buffer *result, mr_result *out) {
    if (err < 0 || !out) {
        buffer_finish(result);
        return err;
    }
    *out = (mr_result){ .body = buffer_bytes(result), .owner = result->data };
    return 0;
}

void mr_result_free(mr_result *result) {
    if (!result)
        return;
    mem_free(result->owner);
    *result = (mr_result){ 0 };
}

static int check_call(const mr *m, const char *stage, mr_bytes body, const mr_push_options **o,
                      mr_bytes *out_stage) {
    int err = check_push(m, stage, body, o, out_stage);
    if (err >= 0 && (*o)->last)
        err = error_set(MR_EINVAL, "a call replaces no job: last must be 0");
    return err;
}

int mr_call(mr *m, const char *stage, mr_bytes body, const mr_push_options *o, mr_result *out) {
    mr_bytes name;
    int err = check_call(m, stage, body, &o, &name);
    if (err < 0)
        return err;
    struct buffer result = { 0 };
    err = m->engine->impl->call(m->engine, name, body, o, &result);
    return give_result(err, &result, out);
}

int mr_call_start(mr *m, const char *stage, mr_bytes body, const mr_push_options *o,
                  mr_on_end *on_end, void *arg, mr_id *out) {
    mr_bytes name;
    int err = check_call(m, stage, body, &o, &name);
    if (err >= 0 && !on_end)
        err = error_set(MR_EINVAL, "on_end is NULL: give a function to be called at the end");
    return err < 0 ? err : m->engine->impl->call_start(m->engine, name, body, o, on_end, arg, out);
}

int mr_await(mr *m, mr_id id, int64_t wait_ms, mr_result *out) {
    int err = check_open_engine(m);
    if (err >= 0)
        err = check_wait("wait_ms", wait_ms);
    if (err < 0)
        return err;
    struct buffer result = { 0 };
    err = m->engine->impl->await(m->engine, id, wait_ms, &result);
    return give_result(err, &result, out);
}

int mr_cancel(mr *m, mr_id id) {
    int err = check_open_engine(m);
    return err < 0 ? err : m->engine->impl->cancel(m->engine, id);
}
