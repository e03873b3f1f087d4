// store copy: copies what lives in a store into a new one, with any number of shards.
//
//     FROM ── reshard.h ──► TO.copying ── all durable, examined, the same ──► TO
//
// The epoch is the target's first record, so its ids and tokens go on behind the source's. Attempts
// that ran when the source's engine died stand in a file beside each log; an id that a shard does
// not know is passed over there, so every shard of the copy gets them all.
#include "base/errors.h"
#include "base/mem.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/store/reshard.h"
#include "shard/group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_BYTES = 4 << 20 };

struct copy {
    const char *from_dir, *to_dir;
    char making[LOG_PATH]; // where the target is until it is whole
    struct reshard reshard;
    uint64_t total;   // bytes to be scanned
    uint64_t scanned; // bytes of the shards that are copied
};

// The first signal ends the copy and removes its files; a second one ends the process.
static void on_signal(int number) {
    signal(number, SIG_DFL);
    atomic_store(&store_interrupted, true);
}

// ---- The target's directory -------------------------------------------------------------------

// A directory that this copy has made: nothing else is in it.
static void dir_remove(const char *path) {
    DIR *d = opendir(path);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

static void making_remove(const struct copy *c) {
    char path[LAYOUT_PATH];
    for (uint32_t i = 0; c->reshard.to_count > 1 && i < c->reshard.to_count; i++) {
        layout_path(path, c->making, c->reshard.to_count, i);
        dir_remove(path);
    }
    dir_remove(c->making);
}

static int target_check(const char *dir) {
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? 0 : disk_failed(dir, "open", -errno);
    bool empty = true;
    for (struct dirent *e; (e = readdir(d));)
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    closedir(d);
    return empty ? 0 : error_set(MR_EINVAL, "%s is not empty; copy into a new directory", dir);
}

static int making_name(struct copy *c) {
    size_t size = strlen(c->to_dir);
    while (size > 1 && c->to_dir[size - 1] == '/')
        size--;
    int length = snprintf(c->making, sizeof c->making, "%.*s.copying", (int)size, c->to_dir);
    if (length >= (int)sizeof c->making)
        return error_set(MR_EINVAL, "the path of the target is too long");
    if (access(c->making, F_OK) == 0)
        return error_set(MR_EINVAL, "%s was left by a copy that did not end; remove it first",
                         c->making);
    return 0;
}

static int making_place(const struct copy *c) {
    if (rename(c->making, c->to_dir) < 0)
        return disk_failed(c->to_dir, "give the copy its name", -errno);
    return disk_sync_above(&disk_os, c->making); // beside it; to_dir may end in a slash
}

// The number of shards is written before anything else: see layout.h.
static int making_open(struct copy *c, uint64_t segment_size) {
    uint32_t count = c->reshard.to_count;
    struct log_options o = { .sync = LOG_SYNC_NONE, .segment_size = segment_size };
    char path[LAYOUT_PATH];
    int err = 0;
    if (count > 1 && mkdir(c->making, DISK_DIR_MODE) < 0)
        err = disk_failed(c->making, "make the directory", -errno);
    if (err == 0 && count > 1)
        err = layout_write(&disk_os, c->making, &(struct layout){ .shards = count });
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        layout_path(path, c->making, count, i);
        err = log_file_open(path, &o, &c->reshard.to[i]);
    }
    return err;
}

static void making_close(struct copy *c) {
    for (uint32_t i = 0; i < c->reshard.to_count; i++)
        log_close(c->reshard.to[i]);
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
    int err = making_open(c, log.segment_size);
    if (err == 0)
        err = copy_shards(c);
    making_close(c);
    return err;
}

// ---- Files beside the log ---------------------------------------------------------------

// Appends a file to another, whose end is at `*at`. 0 or -errno.
static int file_append(int from, int to, uint64_t *at) {
    uint8_t block[1 << 14];
    for (uint64_t done = 0;;) {
        int64_t size = disk_read_all(&disk_os, from, block, sizeof block, done);
        if (size <= 0)
            return (int)size;
        int err = disk_write_all(&disk_os, to, block, (size_t)size, *at);
        if (err < 0)
            return err;
        done += (uint64_t)size;
        *at += (uint64_t)size;
    }
}

static const char running[] = "running"; // see shard/running.h: slots that stand for themselves

// Those of all shards, into the file `to`, if there are any.
static int running_gather(const struct copy *c, const char *to) {
    char dir[LAYOUT_PATH], from[LOG_PATH];
    uint64_t at = 0;
    int out = -1, err = 0;
    for (uint32_t i = 0; err == 0 && i < c->reshard.from_count; i++) {
        layout_path(dir, c->from_dir, c->reshard.from_count, i);
        path_make(from, dir, running);
        int in = open(from, O_RDONLY | O_CLOEXEC);
        if (in < 0 && errno == ENOENT)
            continue;
        if (in >= 0 && out < 0)
            out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, DISK_FILE_MODE);
        err = in < 0 || out < 0 ? -errno : file_append(in, out, &at);
        if (in >= 0)
            close(in);
    }
    if (out >= 0)
        close(out);
    return err < 0 ? disk_failed(to, "copy", err) : 0;
}

static int running_copy(const struct copy *c) {
    char dir[LAYOUT_PATH], to[LOG_PATH];
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < c->reshard.to_count; i++) {
        layout_path(dir, c->making, c->reshard.to_count, i);
        path_make(to, dir, running);
        err = running_gather(c, to);
    }
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
    int err = store_examine(c->making, &copy);
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
        err = running_copy(c);
    if (err == 0)
        err = copy_compare(c);
    if (err == 0)
        err = making_place(c);
    if (err < 0)
        making_remove(c);
    reshard_finish(&c->reshard);
    return err;
}

static void copy_print(const struct input *in, const struct copy *c) {
    char size[SIZE_WORDS];
    if (!input_option(in, "--json")) {
        printf("%" PRIu64 " entries (%s) copied from file:%s to file:%s.\n", c->reshard.copied,
               size_words(size, c->reshard.bytes), c->from_dir, c->to_dir);
        return;
    }
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    json_text(&j, "from", in->arguments[0]);
    json_text(&j, "to", in->arguments[1]);
    json_number(&j, "entries", c->reshard.copied);
    json_number(&j, "bytes", c->reshard.bytes);
    json_number(&j, "shards", c->reshard.to_count);
    json_close(&j, '}');
    json_end(&j);
}

static enum cli_exit copy_failed(const struct input *in, int err) {
    complain("%s: %s; nothing was copied", in->command->name, error_text());
    if (err == MR_ECANCELLED)
        return CLI_INTERRUPTED;
    return err == MR_EFULL ? CLI_FULL : CLI_FAILED;
}

static void from_close(struct copy *c) {
    for (uint32_t i = 0; i < c->reshard.from_count; i++)
        log_close(c->reshard.from[i].log);
}

static int from_open(struct copy *c) {
    char path[LAYOUT_PATH];
    int err = store_shards(c->from_dir, &c->reshard.from_count);
    for (uint32_t i = 0; err == 0 && i < c->reshard.from_count; i++) {
        layout_path(path, c->from_dir, c->reshard.from_count, i);
        err = log_file_open(path, &(struct log_options){ .read_only = true },
                            &c->reshard.from[i].log);
    }
    if (err < 0)
        from_close(c);
    return err;
}

static enum cli_exit copy_run(const struct input *in, struct copy *c) {
    int err = from_open(c);
    if (err < 0)
        return store_failed(in, c->from_dir, err);
    if (!c->reshard.to_count)
        c->reshard.to_count = c->reshard.from_count;
    err = target_check(c->to_dir);
    if (err == 0)
        err = making_name(c);
    if (err < 0) {
        complain("%s: %s", in->command->name, error_text());
        from_close(c);
        return CLI_UNOPENED;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    err = copy_make(c);
    from_close(c);
    if (err < 0)
        return copy_failed(in, err);
    copy_print(in, c);
    return CLI_DONE;
}

// 0: as many as there are.
static bool shards_read(const struct input *in, uint32_t *out) {
    const char *text = input_option(in, "--shards");
    char *end = NULL;
    unsigned long shards = text ? strtoul(text, &end, 10) : 0;
    *out = (uint32_t)shards;
    if (!text || (*text >= '0' && *text <= '9' && !*end && shards && shards <= SHARDS_MOST))
        return true;
    complain("%s: --shards takes a number from 1 to %d, not '%.50s'", in->command->name,
             SHARDS_MOST, text);
    return false;
}

static enum cli_exit copy_held(const struct input *in, struct copy *c) {
    int fd = -1;
    int err = store_hold(c->from_dir, &fd);
    enum cli_exit code = err < 0 ? store_failed(in, c->from_dir, err) : copy_run(in, c);
    if (fd >= 0)
        close(fd);
    return code;
}

enum cli_exit store_copy_run(const struct input *in) {
    struct copy *c = mem_alloc(sizeof *c);
    if (!c) {
        complain("%s: no memory", in->command->name);
        return CLI_FAILED;
    }
    c->from_dir = store_dir(in, in->arguments[0]);
    c->to_dir = c->from_dir ? store_dir(in, in->arguments[1]) : NULL;
    bool possible = c->to_dir && shards_read(in, &c->reshard.to_count);
    enum cli_exit code = possible ? copy_held(in, c) : CLI_USAGE;
    mem_free(c);
    return code;
}
