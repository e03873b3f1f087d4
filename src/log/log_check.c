// Checking a store: it is opened read-only as an owner would open it; then every segment is read,
// bodies included.
#include "log/file.h"
#include "log/survey.h"

#include "base/errors.h"

#include <fcntl.h>

struct check {
    struct file_log *log;
    void (*each)(void *arg, const struct log_problem *);
    void *arg;
    const atomic_bool *cancel;
    int problems;
};

static void check_report(struct check *c, const char *file, struct stretch where,
                         const char *what) {
    struct log_problem p = {
        .file = file, .offset = where.from, .size = where.upto - where.from, .what = what
    };
    c->problems++;
    c->each(c->arg, &p);
}

static int check_survey(struct check *c, struct survey *v, bool last) {
    struct stretch s;
    int found;
    while ((found = survey_next(v, &s)) > 0)
        check_report(c, v->walk.path, s, "no readable entry");
    if (found == 0 && !v->sealed && !last)
        check_report(c, v->walk.path, (struct stretch){ v->good, v->good },
                     "the end of the segment is missing");
    return found;
}

static int check_file(struct check *c, int fd, const char *path, bool last) {
    struct segment header;
    struct survey v;
    uint64_t segment_size;
    int err = segment_header_read(c->log->disk, fd, path, &header, &segment_size);
    if (err == MR_ECORRUPT) {
        check_report(c, path, (struct stretch){ 0, SEGMENT_START }, "no segment header");
        return 0;
    }
    if (err < 0)
        return err;
    header.fd = fd;
    file_log_set_size(c->log, segment_size);
    char same[LOG_PATH];
    err = survey_begin(&v, segment_walk(c->log, &header, same, SEGMENT_START));
    if (err == 0)
        err = check_survey(c, &v, last);
    survey_finish(&v);
    return err;
}

static int check_segment(struct check *c, uint64_t number, bool last) {
    const struct disk *d = c->log->disk;
    char path[LOG_PATH];
    if (c->cancel && atomic_load(c->cancel))
        return error_set(MR_ECANCELLED, "checking %s was cancelled", c->log->dir);
    segment_path(path, c->log->dir, number, "seg");
    int fd = d->open(d, path, O_RDONLY, 0);
    if (fd < 0)
        return disk_failed(path, "open", fd);
    int err = check_file(c, fd, path, last);
    d->close(d, fd);
    return err;
}

// A body that is marked as damaged does not keep a log from opening, so it is reported here.
static int check_last(struct check *c, struct file_log *l) {
    struct recovered found;
    char path[LOG_PATH];
    int err = segment_examine(l, segment_last(l), &found);
    segment_path(path, l->dir, segment_last(l)->number, "seg");
    if (err == 0 && found.damaged)
        check_report(c, path, (struct stretch){ found.damaged, found.damaged },
                     "the body of an entry was damaged");
    return err;
}

// Opens the log as an owner would, and reports the error. If it opens, the segment of the tail is
// valid (a crash may have torn it and left an empty one behind it): `out_last` is its number.
static int check_open(struct check *c, uint64_t *out_last) {
    struct log *l;
    struct log_options o = { .disk = c->log->disk, .read_only = true };
    int err = log_file_open(c->log->dir, &o, &l);
    if (err == 0) {
        struct log_state state;
        log_look(l, &state);
        *out_last = state.tail / state.segment_size;
        err = check_last(c, (struct file_log *)l);
        log_close(l);
    }
    if (err != MR_ECORRUPT)
        return err;
    check_report(c, c->log->dir, (struct stretch){ 0, 0 }, error_text());
    return 0;
}

static int check_run(struct check *c, struct store_names *names) {
    uint64_t last = UINT64_MAX;
    int err = check_open(c, &last);
    if (err == 0)
        err = store_names_read(c->log->disk, c->log->dir, names);
    size_t count = store_names_count(names);
    for (size_t i = 0; err == 0 && i < count && store_names_at(names, i) < last; i++)
        err = check_segment(c, store_names_at(names, i), i + 1 == count);
    return err;
}

int log_file_check(const char *dir, const struct disk *disk, const atomic_bool *cancel,
                   void (*each)(void *arg, const struct log_problem *), void *arg) {
    struct log_options o = { .disk = disk, .read_only = true };
    struct check c = { .log = file_log_make(dir, &o), .each = each, .arg = arg, .cancel = cancel };
    if (!c.log)
        return error_set(MR_ENOMEM, "no memory to check %s", dir);
    struct store_names names = { 0 };
    int err = check_run(&c, &names);
    store_names_finish(&names);
    file_log_destroy(c.log);
    return err < 0 ? err : c.problems;
}
