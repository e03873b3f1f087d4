// Examines a store: reads each shard's log as a whole, bodies too, replays its records into a core,
// opens that and checks its rules. What the core would write is discarded.
#include "cli/store/store.h"

#include "base/errors.h"
#include "base/mem.h"
#include "log/store.h"
#include "shard/clean.h"
#include "shard/group.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

// The error of opening comes first, and is about the whole directory; it is left out if the places
// are listed behind it. `first` is the first problem of this directory.
static void problems_drop_first(struct findings *f, uint64_t first, const char *dir) {
    if (f->problem_count < first + 2 || !f->problems || first >= PROBLEMS_LISTED ||
        strcmp(f->problems[first].file, dir) != 0)
        return;
    memmove(f->problems + first, f->problems + first + 1,
            (PROBLEMS_LISTED - first - 1) * sizeof *f->problems);
    f->problem_count--;
}

static void problem_in_records(struct findings *f, const char *file, uint64_t offset,
                               const char *what) {
    struct log_problem p = { .file = file, .offset = offset, .what = what };
    problem_add(f, &p);
    if (f->problems && f->problem_count <= PROBLEMS_LISTED)
        f->problems[f->problem_count - 1].in_records = true;
}

// ---- The log ----------------------------------------------------------------------------------

// A directory without the file `store` is still a store if it has segments.
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

atomic_bool store_interrupted;

static int examine_log(const char *dir, struct findings *f) {
    uint64_t before = f->problem_count;
    int err = log_file_check(dir, NULL, &store_interrupted, problem_add, f);
    if (err == MR_EINVAL) {
        char sentence[1024];
        snprintf(sentence, sizeof sentence, "%s", error_text());
        err = look_for_segments(dir, f);
        if (err < 0)
            error_set(err, "%s", sentence);
    }
    problems_drop_first(f, before, dir);
    return err < 0 ? err : 0;
}

// ---- The stream of a cluster ------------------------------------------------------------------

enum { PIECE = 4 << 20, PLACE_NAME = 32 };

struct stream_check {
    struct findings *findings;
    char place[PLACE_NAME];
};

static void shard_name(char *out, uint32_t shard) {
    snprintf(out, PLACE_NAME, "shard %u", (unsigned)shard);
}

static void stream_problem(const struct stream_check *c, uint64_t at) {
    problem_add(c->findings,
                &(struct log_problem){ .file = c->place, .offset = at, .what = error_text() });
}

static int check_entry(void *arg, const struct log_seen *seen) {
    if (store_interrupted)
        return error_set(MR_ECANCELLED, "interrupted");
    if (seen->damaged || seen->restored)
        stream_problem(arg, seen->at);
    return 0;
}

// Reads everything, so that all checksums are tested.
static int examine_stream(struct log *log, uint32_t shard, struct findings *f) {
    struct stream_check c = { .findings = f };
    struct log_state state;
    int err = 0;
    log_look(log, &state);
    shard_name(c.place, shard);
    for (uint64_t at = state.head; err == 0 && at < state.tail;) {
        err = log_scan(log, at, PIECE, check_entry, &c, &at);
        if (err == MR_ECORRUPT)
            stream_problem(&c, at);
    }
    return err == MR_ECORRUPT ? 0 : err;
}

// ---- The records ------------------------------------------------------------------------------

static int load_one(void *arg, const struct log_seen *seen) {
    struct loaded *l = arg;
    if (store_interrupted)
        return error_set(MR_ECANCELLED, "interrupted");
    l->entries++;
    int err = core_replay(l->core, seen->at, seen->head, seen->body_size);
    if (err < 0) {
        l->at = seen->at;
        l->refused = true;
        snprintf(l->what, sizeof l->what, "%s", error_text());
    }
    return err;
}

int store_load(struct log *log, const struct core_sink *sink, struct loaded *out) {
    struct core_config config = { .sink = *sink, .shard = out->shard, .shards = out->shards };
    int err = core_create(&config, &out->core);
    if (err < 0)
        return err;
    err = log_replay(log, load_one, out);
    if (err < 0)
        return err;
    // The core would trim the log now, which is open read-only.
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

// ---- A shard ----------------------------------------------------------------------------------

static void store_examine_note_refused(const struct store_view *v, struct findings *f,
                                       uint64_t segment_size, const struct loaded *l) {
    char dir[LAYOUT_PATH], path[LOG_PATH];
    uint64_t offset = l->refused ? l->at : 0;
    if (v->streams) {
        shard_name(path, l->shard);
    } else {
        layout_path(dir, v->url.text, v->shards, l->shard);
        snprintf(path, sizeof path, "%s", dir);
        if (l->refused)
            segment_path(path, dir, l->at / segment_size, "seg");
        offset = l->refused ? l->at % segment_size : 0;
    }
    problem_in_records(f, path, offset, l->refused ? l->what : error_text());
}

static int examine_core(struct log *log, struct loaded *l) {
    int err = store_load(log, &nowhere, l);
    if (err == 0)
        err = core_open(l->core, 0, 0);
    return err < 0 ? err : core_check(l->core);
}

static int examine_records(const struct store_view *v, struct log *log, uint32_t shard,
                           struct findings *f) {
    struct log_state state;
    struct loaded l = { .shard = shard, .shards = f->shards };
    log_look(log, &state);
    int err = examine_core(log, &l);
    if (err == MR_ECORRUPT)
        store_examine_note_refused(v, f, state.segment_size, &l);
    f->entries += l.entries;
    f->bytes += state.bytes;
    f->segments += state.tail / state.segment_size - state.head / state.segment_size + 1;
    if (err == 0)
        f->cores[shard] = l.core;
    else
        core_destroy(l.core);
    return err == MR_ECORRUPT ? 0 : err;
}

// If one of several is missing that is damage.
static int examine_files(const struct store_view *v, uint32_t shard, struct findings *f) {
    char dir[LAYOUT_PATH];
    layout_path(dir, v->url.text, v->shards, shard);
    if (f->shards == 1 || access(dir, F_OK) == 0)
        return examine_log(dir, f);
    problem_add(f, &(struct log_problem){ .file = dir, .what = "the shard is missing" });
    return 0;
}

static int examine_opened(const struct store_view *v, uint32_t shard, struct findings *f) {
    uint64_t before = f->problem_count;
    struct log *log;
    int err = store_view_shard(v, shard, &log);
    if (err == MR_ECORRUPT)
        store_examine_note_refused(v, f, 0, &(struct loaded){ .shard = shard });
    if (err < 0)
        return err == MR_ECORRUPT ? 0 : err;
    err = v->streams ? examine_stream(log, shard, f) : 0;
    if (err == 0 && f->problem_count == before)
        err = examine_records(v, log, shard, f);
    log_close(log);
    return err;
}

static int examine_shard(const struct store_view *v, uint32_t shard, struct findings *f) {
    uint64_t before = f->problem_count;
    int err = v->streams ? 0 : examine_files(v, shard, f);
    if (err == 0 && f->problem_count == before)
        err = examine_opened(v, shard, f);
    if (f->problem_count > before)
        f->damaged |= UINT64_C(1) << shard;
    return err;
}

// ---- The store --------------------------------------------------------------------------------

static void forget_cores(struct findings *f) {
    for (uint32_t i = 0; i < f->shards; i++) {
        core_destroy(f->cores[i]);
        f->cores[i] = NULL;
    }
}

int store_examine(const struct store_view *v, struct findings *out) {
    struct findings f = { .shards = v->shards };
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < f.shards; i++)
        err = examine_shard(v, i, &f);
    if (err < 0) {
        findings_finish(&f);
        return err;
    }
    if (f.problem_count)
        forget_cores(&f);
    *out = f;
    return 0;
}

void findings_finish(struct findings *f) {
    forget_cores(f);
    mem_free(f->problems);
    *f = (struct findings){ 0 };
}

// Adds what another shard has of the same stage: older stores have a stage in several shards.
static void stage_info_add(struct stage_info *sum, const struct stage_info *more) {
    sum->waiting += more->waiting;
    sum->running += more->running;
    sum->parked += more->parked;
    sum->delayed += more->delayed;
    sum->dead += more->dead;
    sum->pushed += more->pushed;
    sum->done += more->done;
    sum->failed += more->failed;
    sum->expired += more->expired;
    sum->cancelled += more->cancelled;
    sum->wasted_wait_ms += more->wasted_wait_ms;
    sum->states += more->states;
    sum->linked += more->linked;
}

int findings_stage(const struct findings *f, mr_bytes stage, struct stage_info *out) {
    struct stage_info sum, more;
    bool known = false;
    int err = 0;
    for (uint32_t i = 0; i < f->shards; i++) {
        err = core_look_stage(f->cores[i], stage, known ? &more : &sum);
        if (err == 0 && known)
            stage_info_add(&sum, &more);
        known = known || err == 0;
    }
    if (!known)
        return err;
    *out = sum;
    return 0;
}

// A stage is shown with the first shard that knows it.
static bool is_known_before(const struct findings *f, uint32_t shard, mr_bytes stage) {
    struct stage_info info;
    for (uint32_t i = 0; i < shard; i++)
        if (core_look_stage(f->cores[i], stage, &info) == 0)
            return true;
    return false;
}

int findings_stages(const struct findings *f, int (*each)(void *, const struct stage_info *),
                    void *arg) {
    int stop = 0;
    for (uint32_t i = 0; i < f->shards; i++)
        for (size_t n = 0; !stop && n < core_stage_places(f->cores[i]); n++) {
            struct stage_info info;
            mr_bytes name = core_stage_name(f->cores[i], n);
            if (name.size && !is_known_before(f, i, name) && findings_stage(f, name, &info) == 0)
                stop = each(arg, &info);
        }
    return stop;
}
