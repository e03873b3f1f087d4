// store dump: prints the logs entry by entry, one shard after another. Records have the number of
// their stage, and the record that names it may come later, so names are gathered first. Some
// records (a failed attempt) only have the id of their job, so the jobs of the selected stage are
// noted as they are read.
#include "base/errors.h"
#include "base/map.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/store/record_text.h"
#include "cli/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES_MOST = 1 << 16, NAME_BYTES = 256 };

#define ALL UINT64_MAX // shards

struct stage_name {
    uint8_t size;
    char text[NAME_BYTES];
};

struct dump {
    struct log *log;
    uint32_t shard, shards;
    bool json, body, known;   // known: the selected stage is
    uint64_t from, id;        // id 0: all
    mr_bytes stage;           // empty: all
    struct stage_name *names; // by number
    uint32_t name_count;
    struct buffer ids; // jobs of the selected stage
    struct map seen;   // where they are in it, from 1
    struct buffer content;
};

// ---- Names ------------------------------------------------------------------------------------

static int names_reserve(struct dump *d, uint32_t number) {
    if (number < d->name_count)
        return 0;
    uint32_t count = number < 16 ? 32 : number * 2;
    struct stage_name *names = mem_resize(d->names, count * sizeof *names);
    if (!names)
        return error_set(MR_ENOMEM, "no memory for the names of %u stages", count);
    memset(names + d->name_count, 0, (count - d->name_count) * sizeof *names);
    d->names = names;
    d->name_count = count;
    return 0;
}

static int name_gather(void *arg, const struct log_seen *seen) {
    struct dump *d = arg;
    struct record r;
    if (!record_is_stage(seen->head))
        return 0;
    struct record_about about;
    int err = record_decode(seen->head, &about, &r);
    if (err < 0 || r.stage >= STAGES_MOST || r.name.size >= NAME_BYTES)
        return err;
    if ((err = names_reserve(d, r.stage)) < 0)
        return err;
    d->names[r.stage].size = (uint8_t)r.name.size;
    memcpy(d->names[r.stage].text, r.name.data, r.name.size);
    return 0;
}

static mr_bytes store_dump_name_of(const struct dump *d, uint32_t number) {
    if (number >= d->name_count)
        return (mr_bytes){ 0 };
    return bytes_of(d->names[number].text, d->names[number].size);
}

// ---- Selecting ---------------------------------------------------------------------------

static bool id_equals(const void *owner, uint32_t value, const void *id) {
    const struct dump *d = owner;
    return memcmp(d->ids.data + (value - 1) * sizeof(uint64_t), id, sizeof(uint64_t)) == 0;
}

static bool id_is_known(const struct dump *d, uint64_t id) {
    return map_find(&d->seen, number_hash(id), id_equals, d, &id) != 0;
}

static int id_note(struct dump *d, uint64_t id) {
    if (!id || id_is_known(d, id))
        return 0;
    int err = map_reserve(&d->seen, 1);
    if (err == 0)
        err = buffer_append(&d->ids, &id, sizeof id);
    if (err == 0)
        map_put(&d->seen, number_hash(id), (uint32_t)(d->ids.size / sizeof id));
    return err;
}

// 1: the record concerns the selected stage.
static int stage_fits(struct dump *d, const struct record *r) {
    if (!d->stage.size)
        return 1;
    if (!r->stage)
        return r->id && id_is_known(d, r->id);
    if (!bytes_equal(store_dump_name_of(d, r->stage), d->stage))
        return 0;
    int err = id_note(d, r->id);
    return err < 0 ? err : 1;
}

// ---- Printing ----------------------------------------------------------------------------------

static int show(struct dump *d, const struct log_seen *seen, const struct record *r) {
    struct dump_entry s = { .shard = d->shard,
                            .shards = d->shards,
                            .at = seen->at,
                            .record = r,
                            .stage = store_dump_name_of(d, r->stage),
                            .body_size = seen->body_size,
                            .with_body = d->body };
    if (d->body || r->kind == RECORD_FAIL) {
        buffer_clear(&d->content);
        int err = log_read(d->log, seen->at, NULL, &d->content);
        if (err < 0)
            return err;
        s.body = buffer_bytes(&d->content);
    }
    if (d->json)
        record_json(&s);
    else
        record_print(&s);
    return 0;
}

static int dump_one(void *arg, const struct log_seen *seen) {
    struct dump *d = arg;
    struct record_about about;
    struct record r;
    int err = record_decode(seen->head, &about, &r);
    if (err < 0)
        return err;
    int fits = stage_fits(d, &r);
    if (fits <= 0 || seen->at < d->from || (d->id && r.id != d->id))
        return fits < 0 ? fits : 0;
    return show(d, seen, &r);
}

// ---- The command ------------------------------------------------------------------------------

static bool store_dump_number_read(const struct input *in, const char *option, uint64_t *out) {
    const char *text = input_option(in, option);
    if (!text)
        return true;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno) {
        complain("%s: %s takes a number, not '%.50s'", in->command->name, option, text);
        return false;
    }
    *out = number;
    return true;
}

static bool dump_read(const struct input *in, struct dump *d) {
    const char *stage = input_option(in, "--stage");
    d->json = input_option(in, "--json");
    d->body = input_option(in, "--body");
    d->stage = mr_str(stage ? stage : "");
    return store_dump_number_read(in, "--from", &d->from) &&
           store_dump_number_read(in, "--id", &d->id);
}

static bool stage_is_known(const struct dump *d) {
    for (uint32_t i = 0; i < d->name_count; i++)
        if (bytes_equal(store_dump_name_of(d, i), d->stage))
            return true;
    return false;
}

static void shard_forget(struct dump *d) {
    log_close(d->log);
    mem_free(d->names);
    map_finish(&d->seen);
    buffer_finish(&d->ids);
    d->log = NULL;
    d->names = NULL;
    d->name_count = 0;
}

static int shard_dump(struct dump *d) {
    int err = log_replay(d->log, name_gather, d);
    d->known = d->known || stage_is_known(d);
    return err < 0 ? err : log_replay(d->log, dump_one, d);
}

static enum cli_exit dump_run(const struct input *in, const struct store_view *v, struct dump *d,
                              uint64_t only) {
    int err = 0;
    for (d->shard = 0; err == 0 && d->shard < d->shards; d->shard++) {
        if (only != ALL && only != d->shard)
            continue;
        err = store_view_look(v, d->shard, &d->log);
        if (err < 0)
            return store_failed(in, &v->url, err);
        err = shard_dump(d);
        shard_forget(d);
    }
    if (err < 0)
        complain("%s: %s", in->command->name, error_text());
    else if (d->stage.size && !d->known)
        complain("%s: there is no stage '%.*s' in %s; millrace store check lists them",
                 in->command->name, (int)d->stage.size, (const char *)d->stage.data, v->name);
    else
        return CLI_DONE;
    return CLI_FAILED;
}

static enum cli_exit dump_view(const struct input *in, const struct store_view *v, struct dump *d,
                               uint64_t only) {
    store_note_use(v);
    d->shards = v->shards;
    if (only != ALL && only >= d->shards) {
        complain("%s: there is no shard %" PRIu64 "; they are numbered from 0 to %u",
                 in->command->name, only, d->shards - 1);
        return CLI_USAGE;
    }
    enum cli_exit code = dump_run(in, v, d, only);
    buffer_finish(&d->content);
    return code;
}

enum cli_exit store_dump_run(const struct input *in) {
    struct dump d = { 0 };
    struct store_url url;
    struct store_view v;
    uint64_t only = ALL;
    if (!store_read(in, in->arguments[0], input_option(in, "--cluster"), &url) ||
        !dump_read(in, &d) || !store_dump_number_read(in, "--shard", &only))
        return CLI_USAGE;
    int err = store_view_open(&url, &v);
    if (err < 0)
        return store_failed(in, &url, err);
    enum cli_exit code = dump_view(in, &v, &d, only);
    store_view_close(&v);
    return code;
}
