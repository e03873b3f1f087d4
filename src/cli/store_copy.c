// store copy: the cleaner's way of carrying things on, into another log. The source is replayed
// into a core; then its entries are shown to core_clean one after another, which appends a copy of
// whatever is the home of something alive, and the sink puts it into the target.
//
//     FROM ── replay ──► core ◄── core_clean(entry) ── scan ── FROM
//                          │ sink
//                          ▼
//                     TO.copying ── all durable, examined, the same ──► TO
//
// The core's new epoch is the target's first record, so its ids and tokens go on behind the
// source's. Notes of trimming are left out: they are about the source's positions. Copies get
// positions that the source cannot have, so that none is taken for an entry still to come. Attempts
// that ran when the source's engine died stand in a file beside the log, which is copied too.
#include "base/errors.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/store.h"
#include "core/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_BYTES = 4 << 20 };

#define COPIED (UINT64_C(1) << 63) // added to positions in the target

struct copy {
    const char *from_dir, *to_dir;
    char making[LOG_PATH]; // where the target is until it is whole
    struct log *from, *to;
    struct core *core;
    uint64_t copied, bytes;
    uint64_t last_at; // in the target
    struct progress progress;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

// ---- The target's directory -------------------------------------------------------------------

// The directory is one that this copy has made: nothing else is in it.
static void making_remove(const struct copy *c) {
    DIR *d = opendir(c->making);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(c->making);
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
    char parent[LOG_PATH];
    snprintf(parent, sizeof parent, "%s", c->making);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    int err = disk_os.sync_dir(&disk_os, slash ? parent : ".");
    return err < 0 ? disk_failed(c->to_dir, "sync the directory above", err) : 0;
}

// ---- Copying ----------------------------------------------------------------------------------

static int copy_append(void *owner, const struct entry *entries, size_t count, enum room room,
                       uint64_t *out_at) {
    struct copy *c = owner;
    (void)room; // there is no hurry to use what is kept for an engine in need
    int err = log_append(c->to, entries, count, ROOM_PUSH, out_at);
    if (err < 0)
        return err;
    c->last_at = out_at[count - 1];
    for (size_t i = 0; i < count; i++) {
        out_at[i] += COPIED;
        c->bytes += entry_size(entries[i].head.size, entries[i].body.size);
    }
    c->copied += count;
    return 0;
}

static int copy_read(void *owner, uint64_t at, struct buffer *out_body) {
    struct copy *c = owner;
    return at >= COPIED ? log_read(c->to, at - COPIED, NULL, out_body)
                        : log_read(c->from, at, NULL, out_body);
}

static const struct core_sink copy_sink = { .append = copy_append, .read = copy_read };

static int copy_one(void *arg, const struct log_seen *seen) {
    struct copy *c = arg;
    if (seen->head.size && *(const uint8_t *)seen->head.data == RECORD_TRIM)
        return 0;
    return core_clean(c->core, seen->at, seen->head, seen->body);
}

static int copy_entries(struct copy *c, const struct log_state *from) {
    int err = 0;
    for (uint64_t at = from->head; err == 0 && at < from->tail;) {
        err = log_scan(c->from, at, STEP_BYTES, copy_one, c, &at);
        log_flush(c->to, false);
        if (err == 0)
            err = log_wait(c->to, c->last_at);
        if (err == 0 && interrupted)
            err = error_set(MR_ECANCELLED, "interrupted");
        progress_draw(&c->progress, at - from->head);
    }
    progress_clear(&c->progress);
    if (err < 0)
        return err;
    log_flush(c->to, true);
    return log_wait(c->to, c->last_at);
}

static int copy_log(struct copy *c) {
    struct log_state from;
    log_look(c->from, &from);
    c->progress = (struct progress){ .doing = "copying", .total = from.tail - from.head };
    struct log_options o = { .sync = LOG_SYNC_NONE, .segment_size = from.segment_size };
    int err = log_file_open(c->making, &o, &c->to);
    if (err < 0)
        return err;
    struct loaded l = { 0 };
    err = store_load(c->from, &copy_sink, c, &l);
    c->core = l.core;
    if (err == 0)
        err = core_open(c->core, 0, 0);
    if (err == 0)
        err = copy_entries(c, &from);
    log_close(c->to);
    return err;
}

// ---- What stands beside the log ---------------------------------------------------------------

// 0 or -errno.
static int file_copy(int from, int to) {
    uint8_t block[1 << 14];
    for (uint64_t at = 0;;) {
        int64_t size = disk_read_all(&disk_os, from, block, sizeof block, at);
        if (size <= 0)
            return (int)size;
        int err = disk_write_all(&disk_os, to, block, (size_t)size, at);
        if (err < 0)
            return err;
        at += (uint64_t)size;
    }
}

static int running_copy(const struct copy *c) {
    static const char name[] = "running"; // see shard/running.h
    char from[LOG_PATH], to[LOG_PATH];
    path_make(from, c->from_dir, name);
    path_make(to, c->making, name);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return errno == ENOENT ? 0 : disk_failed(from, "open", -errno);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int err = out < 0 ? -errno : file_copy(in, out);
    close(in);
    if (out >= 0)
        close(out);
    return err < 0 ? disk_failed(to, "copy", err) : 0;
}

// ---- Is it the same? --------------------------------------------------------------------------

static bool stages_equal(struct core *a, struct core *b, size_t index) {
    struct stage_info x, y;
    core_stage_at(a, index, &x);
    int err = core_look_stage(b, x.name, &y);
    return err == 0 && x.waiting == y.waiting && x.delayed == y.delayed && x.parked == y.parked &&
           x.dead == y.dead && x.states == y.states && x.pushed == y.pushed && x.done == y.done &&
           x.failed == y.failed && x.expired == y.expired && x.cancelled == y.cancelled &&
           x.paused == y.paused && x.draining == y.draining;
}

static int copy_compare(const struct copy *c) {
    struct findings f;
    int err = store_examine(c->making, &f);
    if (err < 0)
        return err;
    if (f.problem_count)
        err = error_set(MR_ECORRUPT, "the copy is not sound: %s",
                        f.problems ? f.problems[0].what : "");
    bool same = err < 0 || core_stage_count(c->core) == core_stage_count(f.cores[0]);
    for (size_t i = 0; err == 0 && same && i < core_stage_count(c->core); i++)
        same = stages_equal(c->core, f.cores[0], i);
    findings_finish(&f);
    return same ? err : error_set(MR_ECORRUPT, "the copy does not hold what the store does");
}

// ---- The command ------------------------------------------------------------------------------

static int copy_make(struct copy *c) {
    int err = copy_log(c);
    if (err == 0)
        err = running_copy(c);
    if (err == 0)
        err = copy_compare(c);
    if (err == 0)
        err = making_place(c);
    if (err < 0)
        making_remove(c);
    core_destroy(c->core);
    return err;
}

static void copy_tell(const struct input *in, const struct copy *c) {
    char size[SIZE_WORDS];
    if (!input_option(in, "--json")) {
        printf("%" PRIu64 " entries (%s) copied from file:%s to file:%s.\n", c->copied,
               size_words(size, c->bytes), c->from_dir, c->to_dir);
        return;
    }
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    json_text(&j, "from", in->arguments[0]);
    json_text(&j, "to", in->arguments[1]);
    json_number(&j, "entries", c->copied);
    json_number(&j, "bytes", c->bytes);
    json_close(&j, '}');
    json_end(&j);
}

static enum cli_exit copy_failed(const struct input *in, int err) {
    complain("%s: %s; nothing was copied", in->command->name, error_text());
    if (err == MR_ECANCELLED)
        return CLI_INTERRUPTED;
    return err == MR_EFULL ? CLI_FULL : CLI_FAILED;
}

static enum cli_exit copy_run(const struct input *in, struct copy *c) {
    int err = log_file_open(c->from_dir, &(struct log_options){ .read_only = true }, &c->from);
    if (err < 0)
        return store_failed(in, c->from_dir, err);
    err = target_check(c->to_dir);
    if (err == 0)
        err = making_name(c);
    if (err < 0) {
        complain("%s: %s", in->command->name, error_text());
        log_close(c->from);
        return CLI_UNOPENED;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    err = copy_make(c);
    log_close(c->from);
    if (err < 0)
        return copy_failed(in, err);
    copy_tell(in, c);
    return CLI_DONE;
}

enum cli_exit store_copy_run(const struct input *in) {
    struct copy c = { .from_dir = store_dir(in, in->arguments[0]) };
    c.to_dir = c.from_dir ? store_dir(in, in->arguments[1]) : NULL;
    if (!c.to_dir)
        return CLI_USAGE;
    int fd = -1;
    int err = store_hold(c.from_dir, &fd);
    enum cli_exit code = err < 0 ? store_failed(in, c.from_dir, err) : copy_run(in, &c);
    if (fd >= 0)
        close(fd);
    return code;
}
