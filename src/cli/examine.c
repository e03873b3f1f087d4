// Examining a store: the log reads through, bodies too; its records, replayed, make a core that
// opens and keeps every rule. The core is a throw-away: what it would write is kept nowhere.
#include "cli/store.h"

#include "base/errors.h"
#include "base/mem.h"
#include "log/store.h"
#include "shard/clean.h"

#include <stdio.h>
#include <string.h>

// ---- Problems ---------------------------------------------------------------------------------

static void problem_add(void *arg, const struct log_problem *found) {
    struct findings *f = arg;
    if (!f->problems)
        f->problems = mem_alloc(PROBLEMS_LISTED * sizeof *f->problems);
    if (f->problems && f->problem_count < PROBLEMS_LISTED) {
        struct problem *p = &f->problems[f->problem_count];
        snprintf(p->file, sizeof p->file, "%s", found->file);
        snprintf(p->what, sizeof p->what, "%s", found->what);
        p->offset = found->offset;
        p->size = found->size;
    }
    f->problem_count++;
}

// What an owner would be told comes first, about the whole directory; it says nothing new if the
// places are listed behind it.
static void problems_drop_first(struct findings *f, const char *dir) {
    if (f->problem_count < 2 || !f->problems || strcmp(f->problems[0].file, dir) != 0)
        return;
    memmove(f->problems, f->problems + 1, (PROBLEMS_LISTED - 1) * sizeof *f->problems);
    f->problem_count--;
}

static void problem_in_records(struct findings *f, const char *file, uint64_t offset) {
    struct log_problem p = { .file = file, .offset = offset, .what = error_text() };
    problem_add(f, &p);
    if (f->problems)
        f->problems[0].in_records = true;
}

// ---- The log ----------------------------------------------------------------------------------

// Without the file `store` a directory is not taken for one, but its segments tell.
static int look_for_segments(const char *dir, struct findings *f) {
    struct store_names names = { 0 };
    int err = store_names_read(&disk_os, dir, &names);
    bool lost = err == 0 && !names.store && store_names_count(&names) > 0;
    store_names_finish(&names);
    if (!lost)
        return MR_EINVAL;
    char path[LOG_PATH];
    path_make(path, dir, "store");
    problem_add(f, &(struct log_problem){ .file = path, .what = "the file is missing" });
    return 0;
}

static int examine_log(const char *dir, struct findings *f) {
    int err = log_file_check(dir, NULL, problem_add, f);
    if (err == MR_EINVAL) {
        char sentence[1024];
        snprintf(sentence, sizeof sentence, "%s", error_text());
        err = look_for_segments(dir, f);
        if (err < 0)
            error_set(err, "%s", sentence);
    }
    problems_drop_first(f, dir);
    return err < 0 ? err : 0;
}

// ---- The records ------------------------------------------------------------------------------

static int load_one(void *arg, const struct log_seen *seen) {
    struct loaded *l = arg;
    l->entries++;
    int err = core_replay(l->core, seen->at, seen->head, seen->body_size);
    if (err < 0) {
        l->at = seen->at;
        l->refused = true;
    }
    return err;
}

int store_load(struct log *log, const struct core_sink *sink, void *owner, struct loaded *out) {
    struct core_config config = { .sink = *sink, .owner = owner };
    int err = core_create(&config, &out->core);
    if (err < 0)
        return err;
    err = log_replay(log, load_one, out);
    if (err < 0)
        return err;
    // It would now trim, which a log that is only looked at does not do.
    err = cleaner_resume(&(struct cleaner){ .log = log, .core = out->core });
    return err == MR_EPERM ? 0 : err;
}

#define NOWHERE (UINT64_C(1) << 62) // no log has positions from here on

static int nowhere_append(void *owner, const struct entry *entries, size_t count, enum room room,
                          uint64_t *out_at) {
    (void)owner, (void)entries, (void)room;
    for (size_t i = 0; i < count; i++)
        out_at[i] = NOWHERE + i;
    return 0;
}

static int nowhere_read(void *owner, uint64_t at, struct buffer *out_body) {
    (void)owner, (void)at, (void)out_body;
    return error_set(MR_EGONE, "nothing is kept");
}

static const struct core_sink nowhere = { .append = nowhere_append, .read = nowhere_read };

static void tell_refused(const char *dir, struct findings *f, const struct loaded *l) {
    char path[LOG_PATH];
    snprintf(path, sizeof path, "%s", dir);
    if (l->refused)
        segment_path(path, dir, l->at / f->log.segment_size, "seg");
    problem_in_records(f, path, l->refused ? l->at % f->log.segment_size : 0);
}

static int examine_records(const char *dir, struct findings *f) {
    struct log *log;
    struct loaded l = { 0 };
    int err = log_file_open(dir, &(struct log_options){ .read_only = true }, &log);
    if (err == MR_ECORRUPT)
        tell_refused(dir, f, &l);
    if (err < 0)
        return err == MR_ECORRUPT ? 0 : err;
    log_look(log, &f->log);
    err = store_load(log, &nowhere, NULL, &l);
    if (err == 0)
        err = core_open(l.core, 0, 0);
    if (err == 0)
        err = core_check(l.core);
    if (err == MR_ECORRUPT)
        tell_refused(dir, f, &l);
    f->entries = l.entries;
    if (err == 0)
        f->core = l.core;
    else
        core_destroy(l.core);
    log_close(log);
    return err == MR_ECORRUPT ? 0 : err;
}

int store_examine(const char *dir, struct findings *out) {
    struct findings f = { 0 };
    int err = examine_log(dir, &f);
    if (err == 0 && !f.problem_count)
        err = examine_records(dir, &f);
    if (err < 0) {
        findings_finish(&f);
        return err;
    }
    *out = f;
    return 0;
}

void findings_finish(struct findings *f) {
    core_destroy(f->core);
    mem_free(f->problems);
    *f = (struct findings){ 0 };
}
