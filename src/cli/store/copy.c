// store copy: copies what lives in a store into a new one, with any number of shards.
//
//     FROM ── reshard.h ──► target.h ── all durable, examined, the same ──► TO
//
// The epoch is the target's first record, so its ids and tokens go on behind the source's.
#include "base/errors.h"
#include "base/mem.h"
#include "cli/engine.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/store/reshard.h"
#include "cli/store/target.h"
#include "cli/values.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEP_BYTES = 4 << 20 };

// What the command line says.
struct copy_request {
    struct store_url from, to;
    struct address server; // FROM is a running server; its text is NULL: it is none
    uint32_t shards;       // 0: not given
};

struct copy {
    struct store_view from;
    struct store_target target;
    struct reshard reshard;
    uint64_t total;   // bytes to be scanned
    uint64_t scanned; // bytes of the shards that are copied
    bool in_doubt;    // whether the target is complete
};

// The first signal ends the copy and removes its files; a second one ends the process.
static void on_signal(int number) {
    signal(number, SIG_DFL);
    atomic_store(&store_interrupted, true);
}

// ---- Copying ----------------------------------------------------------------------------------

struct scan {
    struct reshard *reshard;
    uint32_t shard;
};

static int copy_one(void *arg, const struct log_seen *seen) {
    const struct scan *s = arg;
    if (seen->damaged || seen->restored)
        return MR_ECORRUPT; // the log has reported where
    return reshard_entry(s->reshard, s->shard, seen);
}

static int flush_all(struct reshard *r) {
    int err = 0;
    for (uint32_t i = 0; i < r->to_count; i++)
        log_flush(r->to[i], false);
    for (uint32_t i = 0; err == 0 && i < r->to_count; i++)
        err = log_wait(r->to[i], r->last_at[i]);
    return err;
}

static int copy_shard(struct copy *c, uint32_t shard) {
    struct scan scan = { &c->reshard, shard };
    struct log *from = c->reshard.from[shard].log;
    struct log_state log;
    int err = 0;
    log_look(from, &log);
    for (uint64_t at = log.head; err == 0 && at < log.tail;) {
        err = log_scan(from, at, STEP_BYTES, copy_one, &scan, &at);
        if (err == 0)
            err = flush_all(&c->reshard);
        if (err == 0 && store_interrupted)
            err = error_set(MR_ECANCELLED, "interrupted");
        progress_bytes("copying", c->scanned + at - log.head, c->total);
    }
    c->scanned += log.tail - log.head;
    return err;
}

static int copy_shards(struct copy *c) {
    int err = reshard_begin(&c->reshard);
    for (uint32_t i = 0; err == 0 && i < c->reshard.from_count; i++)
        err = copy_shard(c, i);
    progress_clear();
    return err < 0 ? err : reshard_end(&c->reshard);
}

static int copy_logs(struct copy *c) {
    struct log_state log = { 0 };
    for (uint32_t i = 0; i < c->reshard.from_count; i++) {
        log_look(c->reshard.from[i].log, &log);
        c->total += log.tail - log.head;
    }
    int err = target_open(&c->target, c->from.served ? 0 : log.segment_size);
    memcpy(c->reshard.to, c->target.logs, sizeof c->reshard.to);
    if (err == 0)
        err = copy_shards(c);
    target_close(&c->target);
    return err;
}

// ---- Comparing --------------------------------------------------------------------------

static int stage_compare(void *copy, const struct stage_info *x) {
    struct stage_info y;
    int err = findings_stage(copy, x->name, &y);
    bool same = err == 0 && x->waiting == y.waiting && x->delayed == y.delayed &&
                x->parked == y.parked && x->dead == y.dead && x->states == y.states &&
                x->pushed == y.pushed && x->done == y.done && x->failed == y.failed &&
                x->expired == y.expired && x->cancelled == y.cancelled && x->paused == y.paused &&
                x->draining == y.draining;
    return same ? 0 : error_set(MR_ECORRUPT, "the copy does not hold what the store does");
}

static int copy_compare(const struct copy *c) {
    struct findings from = { .shards = c->reshard.from_count }, copy;
    for (uint32_t i = 0; i < from.shards; i++)
        from.cores[i] = c->reshard.from[i].core;
    int err = store_examine(&c->target.view, &copy);
    if (err < 0)
        return err;
    if (copy.problem_count)
        err = error_set(MR_ECORRUPT, "the copy is not sound: %s",
                        copy.problems ? copy.problems[0].what : "");
    else
        err = findings_stages(&from, stage_compare, &copy);
    findings_finish(&copy);
    return err;
}

// ---- The command ------------------------------------------------------------------------------

static int copy_make(struct copy *c) {
    int err = copy_logs(c);
    if (err == 0)
        err = target_copy_running(&c->target, &c->from);
    if (err == 0)
        err = copy_compare(c);
    if (err == 0) {
        err = target_publish(&c->target);
        c->in_doubt = err == MR_ENET;
    }
    reshard_finish(&c->reshard);
    return err;
}

static void copy_print(const struct input *in, const struct copy *c) {
    char size[SIZE_WORDS];
    const char *from = c->from.name, *to = c->target.name;
    if (!input_option(in, "--json")) {
        printf("%" PRIu64 " %s (%s) copied from %s to %s.\n", c->reshard.copied,
               c->reshard.copied == 1 ? "entry" : "entries", size_words(size, c->reshard.bytes),
               from, to);
        return;
    }
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    json_text(&j, "from", from);
    json_text(&j, "to", to);
    json_number(&j, "entries", c->reshard.copied);
    json_number(&j, "bytes", c->reshard.bytes);
    json_number(&j, "shards", c->reshard.to_count);
    json_close(&j, '}');
    json_end(&j);
}

static enum cli_exit copy_failed(const struct input *in, const struct copy *c, int err) {
    if (c->in_doubt)
        complain("%s: %s; millrace store check shows whether the copy is there", in->command->name,
                 error_text());
    else
        complain("%s: %s; nothing was copied", in->command->name, error_text());
    if (err == MR_ECANCELLED)
        return CLI_INTERRUPTED;
    if (err == MR_EFULL)
        return CLI_FULL;
    return err == MR_ENET || err == MR_EINVAL ? CLI_UNOPENED : CLI_FAILED;
}

static void from_close(struct copy *c) {
    for (uint32_t i = 0; i < c->reshard.from_count; i++)
        log_close(c->reshard.from[i].log);
    store_view_close(&c->from);
}

static int from_open(struct copy *c, const struct copy_request *r) {
    int err = r->server.text ? store_view_serve(&r->server, &c->from)
                             : store_view_open(&r->from, &c->from);
    c->reshard.from_count = c->from.shards;
    for (uint32_t i = 0; err == 0 && i < c->from.shards; i++)
        err = store_view_shard(&c->from, i, &c->reshard.from[i].log);
    if (err < 0)
        from_close(c);
    return err;
}

static enum cli_exit copy_into(const struct input *in, struct copy *c) {
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    c->reshard.to_count = c->target.view.shards;
    int err = copy_make(c);
    if (err < 0)
        return copy_failed(in, c, err);
    copy_print(in, c);
    return CLI_DONE;
}

static enum cli_exit copy_run(const struct input *in, const struct copy_request *r,
                              struct copy *c) {
    int err = from_open(c, r);
    if (err < 0)
        return store_failed(in, &r->from, err);
    enum cli_exit code;
    err = target_begin(&r->to, r->shards, c->from.shards, &c->target);
    if (err < 0) {
        complain("%s: %s", in->command->name, error_text());
        code = store_url_dir(&r->to) ? CLI_UNOPENED : store_exit_of(err);
    } else {
        code = copy_into(in, c);
        target_finish(&c->target);
    }
    from_close(c);
    return code;
}

// A directory is locked meanwhile; a cluster is read as it is at the beginning.
static enum cli_exit copy_held(const struct input *in, const struct copy_request *r,
                               struct copy *c) {
    int fd = -1;
    const char *dir = store_url_dir(&r->from);
    int err = dir ? store_hold(dir, &fd) : 0;
    enum cli_exit code = err < 0 ? store_failed(in, &r->from, err) : copy_run(in, r, c);
    if (fd >= 0)
        close(fd);
    return code;
}

static bool copy_shards_read(const struct input *in, uint32_t *out) {
    if (!input_small_count(in, "--shards", SHARDS_MOST, out))
        return false;
    if (*out || !input_option(in, "--shards"))
        return true;
    complain("%s: --shards 0: at least 1", in->command->name);
    return false;
}

static bool from_read(const struct input *in, const char *cluster, struct copy_request *r) {
    const char *url = in->arguments[0];
    if (!url_is_of_server(url))
        return store_read(in, url, cluster, &r->from);
    if (address_read_url(in, url, &r->server) == 0)
        return true;
    complain("%s: %s", in->command->name, error_text());
    return false;
}

// --cluster belongs to the side that is a cluster; if both are, to FROM.
static bool copy_read(const struct input *in, struct copy_request *r) {
    const char *from = input_option(in, "--cluster"), *to = input_option(in, "--to-cluster");
    struct store_url url = { 0 };
    bool from_cluster = store_url_read(in->arguments[0], &url) == 0 && store_is_replicated(&url);
    if (!to && !from_cluster) {
        to = from;
        from = NULL;
    }
    return from_read(in, from, r) && store_read(in, in->arguments[1], to, &r->to) &&
           copy_shards_read(in, &r->shards);
}

enum cli_exit store_copy_run(const struct input *in) {
    struct copy_request r = { 0 };
    if (!copy_read(in, &r))
        return CLI_USAGE;
    struct copy *c = mem_alloc(sizeof *c);
    if (!c) {
        complain("%s: no memory", in->command->name);
        return CLI_FAILED;
    }
    enum cli_exit code = copy_held(in, &r, c);
    mem_free(c);
    return code;
}
