// See store.h: URLs, views, locks, and messages about them.
#include "cli/store/store.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/store/served.h"
#include "log/log_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOKS = 20 }; // at a store that is being written to

static bool begins_with(const char *url, const char *scheme) {
    return strncmp(url, scheme, strlen(scheme)) == 0;
}

const char *store_dir(const struct input *in, const char *url) {
    const char *name = in->command->name;
    if (begins_with(url, "file:") && url[strlen("file:")])
        return url + strlen("file:");
    if (begins_with(url, "file:"))
        complain("%s: 'file:' names no directory: file:DIR", name);
    else if (begins_with(url, "mem:"))
        complain("%s: a store in memory can be used by its own process only; name a file:DIR",
                 name);
    else if (begins_with(url, "millrace"))
        complain("%s: of a server a store can only be copied (millrace store copy); it is examined "
                 "on its machine, as file:DIR",
                 name);
    else if (begins_with(url, "postgres") || begins_with(url, "nats:"))
        complain("%s: this is for stores in files (file:DIR); a cluster is restored from a backup",
                 name);
    else if (strstr(url, "://"))
        complain(
            "%s: '%.200s' is not the URL of a store; it is file:DIR, postgres://... or nats://...",
            name, strchr(url, '@') ? "..." : url);
    else
        complain("%s: '%.200s' is not the URL of a store; did you mean file:%.200s?", name, url,
                 url);
    return NULL;
}

bool store_read(const struct input *in, const char *url, const char *cluster,
                struct store_url *out) {
    struct store_url store;
    if (store_url_read(url, &store) == 0 && store_is_replicated(&store)) {
        store.cluster = cluster;
        *out = store;
        return true;
    }
    const char *dir = store_dir(in, url);
    if (dir && cluster)
        complain("%s: a store in files has no cluster; leave out the name '%.50s'",
                 in->command->name, cluster);
    if (!dir || cluster)
        return false;
    *out = store_in(dir);
    return true;
}

static bool is_journal(const char *dir) {
    char journal[PATH_MAX], store[PATH_MAX];
    snprintf(journal, sizeof journal, "%s/journal", dir);
    snprintf(store, sizeof store, "%s/store/store", dir);
    return access(journal, F_OK) == 0 && access(store, F_OK) == 0;
}

enum cli_exit store_exit_of(int err) {
    if (err == MR_EFULL)
        return CLI_FULL;
    return err == MR_EINVAL ? CLI_USAGE : err == MR_EPERM ? CLI_REFUSED : CLI_UNOPENED;
}

enum cli_exit store_failed(const struct input *in, const struct store_url *store, int err) {
    struct stat st;
    const char *name = in->command->name, *dir = store_url_dir(store);
    if (!dir) {
        complain("%s: %s", name, error_text());
        return store_exit_of(err);
    }
    if (stat(dir, &st) < 0)
        complain("%s: there is no store %s: %s", name, dir, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        complain("%s: %s is a file; a store is a directory", name, dir);
    else if (is_journal(dir))
        complain("%s: %s is the journal of a millrace run; its store is file:%s/store", name, dir,
                 dir);
    else if (err == MR_EBUSY)
        complain("%s: %s; stop that first", name, error_text());
    else
        complain("%s: %s", name, error_text());
    return err == MR_EFULL ? CLI_FULL : CLI_UNOPENED;
}

static int lock_refused(int fd, const char *dir) {
    char holder[128] = { 0 };
    ssize_t size = pread(fd, holder, sizeof holder - 1, 0);
    holder[size > 0 ? strcspn(holder, "\n") : 0] = 0;
    return error_set(MR_EBUSY, "%s is in use by process %s", dir, holder[0] ? holder : "unknown");
}

int store_hold(const char *dir, int *out_fd) {
    char path[LOG_PATH];
    path_make(path, dir, "lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        *out_fd = -1;
        return 0;
    }
    if (fd < 0)
        return disk_failed(path, "open", -errno);
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        *out_fd = fd;
        return 0;
    }
    int err = errno == EWOULDBLOCK ? lock_refused(fd, dir) : disk_failed(path, "lock", -errno);
    close(fd);
    return err;
}

static bool store_in_use(const char *dir) {
    int fd = -1;
    int err = store_hold(dir, &fd);
    if (fd >= 0)
        close(fd);
    return err == MR_EBUSY;
}

void store_note_use(const struct store_view *v) {
    const char *dir = store_url_dir(&v->url);
    if (dir && store_in_use(dir))
        complain("%s; what follows is its present state", error_text());
}

// ---- Reading ----------------------------------------------------------------------------------

static int cluster_view_open(struct store_view *v) {
    snprintf(v->name, sizeof v->name, "cluster %s",
             v->url.cluster ? v->url.cluster : STORE_CLUSTER);
    int err = stream_store_shards(&v->url, &v->shards);
    if (err == 0 && v->shards > SHARDS_MOST)
        err = error_set(MR_EINVAL, "%s has %u shards; this program reads at most %d", v->name,
                        v->shards, SHARDS_MOST);
    return err < 0 ? err : stream_store_begin(&v->url, true, &v->streams);
}

int store_view_open(const struct store_url *url, struct store_view *out) {
    struct store_view v = { .url = *url };
    const char *dir = store_url_dir(url);
    int err = dir ? layout_read(NULL, dir, &v.shards) : cluster_view_open(&v);
    if (err < 0)
        return err;
    if (dir)
        snprintf(v.name, sizeof v.name, "file:%s", dir);
    if (!v.shards)
        v.shards = 1;
    *out = v;
    return 0;
}

int store_view_serve(const struct address *a, struct store_view *out) {
    struct store_view v = { 0 };
    snprintf(v.name, sizeof v.name, "%s", a->url.where);
    int err = served_open(a, &v.served, &v.shards);
    if (err == 0)
        *out = v;
    return err;
}

void store_view_close(struct store_view *v) {
    served_close(v->served);
    stream_store_close(v->streams);
    *v = (struct store_view){ 0 };
}

int store_view_shard(const struct store_view *v, uint32_t shard, struct log **out) {
    struct log_options o = { .read_only = true };
    char path[LAYOUT_PATH];
    if (v->served)
        return served_log(v->served, shard, out);
    if (v->streams)
        return log_stream_open(v->streams, shard, &o, out);
    layout_path(path, v->url.text, v->shards, shard);
    return log_file_open(path, &o, out);
}

static int too_fast(const char *dir) {
    return error_set(MR_EBUSY, "%s changes faster than it can be read", dir);
}

int store_view_look(const struct store_view *v, uint32_t shard, struct log **out) {
    const char *dir = store_url_dir(&v->url);
    int err = MR_EBUSY;
    for (int i = 0; i < LOOKS; i++) {
        bool in_use = dir && store_in_use(dir);
        err = store_view_shard(v, shard, out);
        if ((err != MR_ECORRUPT && err != MR_EIO) || !in_use)
            return err;
    }
    return too_fast(dir);
}

static bool problem_equals(const struct problem *a, const struct problem *b) {
    return a->offset == b->offset && strcmp(a->file, b->file) == 0 && strcmp(a->what, b->what) == 0;
}

// Half-written entries are at another place when the store is examined again; damage is not.
static int examine_patiently(const struct store_view *v, struct problem *before,
                             struct findings *out) {
    const char *dir = store_url_dir(&v->url);
    for (int i = 0; i < LOOKS; i++) {
        bool in_use = dir && store_in_use(dir);
        int err = store_examine(v, out);
        if (!in_use || (err < 0 && err != MR_EIO) || (err == 0 && !out->problem_count))
            return err;
        if (err < 0 || !out->problems)
            continue;
        if (problem_equals(before, &out->problems[0]))
            return 0;
        *before = out->problems[0];
        findings_finish(out);
    }
    return too_fast(dir);
}

int store_look(const struct store_view *v, struct findings *out) {
    struct problem *before = mem_alloc(sizeof *before);
    struct findings f = { 0 };
    int err = before ? examine_patiently(v, before, &f)
                     : error_set(MR_ENOMEM, "no memory to examine %s", v->name);
    mem_free(before);
    if (err == 0)
        *out = f;
    return err;
}
