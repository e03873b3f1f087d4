// store repair: examines a store, prints what is wrong, repairs the log and then its records, and
// examines it again.
#include "shard/repair.h"
#include "base/errors.h"
#include "base/mem.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/store/store.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

// ---- What would be done -----------------------------------------------------------------------

// Segments that would be changed, and bytes in the damaged places; both may be more.
static void plan(const struct findings *f, uint64_t *out_segments, uint64_t *out_bytes) {
    uint64_t count = f->problem_count < PROBLEMS_LISTED ? f->problem_count : PROBLEMS_LISTED;
    *out_segments = *out_bytes = 0;
    for (uint64_t i = 0; f->problems && i < count; i++) {
        const struct problem *p = &f->problems[i];
        bool same = i > 0 && strcmp(p->file, p[-1].file) == 0;
        *out_segments += strstr(p->file, ".seg") && !p->in_records && !same;
        *out_bytes += p->size;
    }
}

static void plan_print(const struct store_view *v, const struct findings *f) {
    uint64_t segments, bytes;
    char size[SIZE_WORDS];
    plan(f, &segments, &bytes);
    problems_print(v, f);
    printf("\nA repair would ");
    if (segments)
        printf("copy %" PRIu64 " segment%s aside (as NUMBER.seg.damaged), ", segments,
               segments == 1 ? "" : "s");
    if (bytes)
        printf("give up %s or\nmore, ", size_words(size, bytes));
    printf("and keep all that can be read. Nothing was changed.\n");
}

static void plan_json(const char *url, const struct findings *f) {
    struct json j = { 0 };
    uint64_t segments, bytes;
    plan(f, &segments, &bytes);
    json_open(&j, NULL, '{');
    json_text(&j, "store", url);
    json_flag(&j, "sound", !f->problem_count);
    json_flag(&j, "changed", false);
    problems_json(&j, f);
    json_number(&j, "segments", segments);
    json_number(&j, "bytes-lost", bytes);
    json_close(&j, '}');
    json_end(&j);
}

// ---- What was done ----------------------------------------------------------------------------

static void done_print(const char *dir, const struct shard_repair *r) {
    char size[SIZE_WORDS];
    const struct log_repair *l = &r->log;
    printf("\nRepaired %s:\n\n", dir);
    for (uint64_t i = 0; i < l->places && i < LOG_REPAIR_PLACES; i++)
        printf("  %016" PRIx64 ".seg, offset %" PRIu64 ": %s given up\n", l->place[i].segment,
               l->place[i].offset, size_words(size, l->place[i].size));
    if (l->places > LOG_REPAIR_PLACES)
        printf("  … and places more: %" PRIu64 "\n", l->places - LOG_REPAIR_PLACES);
    if (l->segments)
        printf("  %" PRIu64 " segment%s changed, as before in %s/NUMBER.seg.damaged\n", l->segments,
               l->segments == 1 ? "" : "s", dir);
    if (l->missing)
        printf("  %" PRIu64 " segment%s missing, and all that was in %s\n", l->missing,
               l->missing == 1 ? " was" : "s were", l->missing == 1 ? "it" : "them");
    if (r->stages)
        printf("  %" PRIu64 " stage%s had lost the name, now called lost-NUMBER\n", r->stages,
               r->stages == 1 ? "" : "s");
    if (!l->segments && !l->missing && !r->stages)
        printf("  nothing was lost\n");
}

static void places_json(struct json *j, const struct log_repair *l, uint32_t shard,
                        uint32_t shards) {
    for (uint64_t i = 0; i < l->places && i < LOG_REPAIR_PLACES; i++) {
        char file[32];
        snprintf(file, sizeof file, "%016" PRIx64 ".seg", l->place[i].segment);
        json_open(j, NULL, '{');
        if (shards > 1)
            json_number(j, "shard", shard);
        json_text(j, "file", file);
        json_number(j, "offset", l->place[i].offset);
        json_number(j, "size", l->place[i].size);
        json_close(j, '}');
    }
}

static void done_json(const char *url, const struct shard_repair *all, uint32_t shards,
                      bool sound) {
    struct json j = { 0 };
    struct shard_repair sum = { 0 };
    for (uint32_t i = 0; i < shards; i++) {
        sum.log.segments += all[i].log.segments;
        sum.log.missing += all[i].log.missing;
        sum.log.bytes += all[i].log.bytes;
        sum.stages += all[i].stages;
    }
    json_open(&j, NULL, '{');
    json_text(&j, "store", url);
    json_flag(&j, "sound", sound);
    json_flag(&j, "changed", true);
    json_number(&j, "segments", sum.log.segments);
    json_number(&j, "segments-missing", sum.log.missing);
    json_number(&j, "bytes-lost", sum.log.bytes);
    json_number(&j, "stages-renamed", sum.stages);
    json_open(&j, "places", '[');
    for (uint32_t i = 0; i < shards; i++)
        places_json(&j, &all[i].log, i, shards);
    json_close(&j, ']');
    json_close(&j, '}');
    json_end(&j);
}

// ---- The command ------------------------------------------------------------------------------

// Those that are damaged; `out` has one for each.
static int repair_all(const struct store_view *v, const struct findings *f, bool json,
                      struct shard_repair *out) {
    char path[LAYOUT_PATH];
    for (uint32_t i = 0; i < f->shards; i++) {
        if (!(f->damaged >> i & 1))
            continue;
        layout_path(path, v->url.text, f->shards, i);
        int err = shard_repair(
            &(struct shard_place){ .dir = path, .shard = i, .shards = f->shards }, &out[i]);
        if (err < 0)
            return err;
        if (!json)
            done_print(path, &out[i]);
    }
    return 0;
}

// Examines it once more; prints what is still wrong.
static enum cli_exit store_repair_finish(const struct input *in, const struct store_view *v,
                                         const struct shard_repair *all) {
    struct findings after;
    int err = store_examine(v, &after);
    if (err < 0)
        return store_failed(in, &v->url, err);
    bool sound = !after.problem_count, json = input_option(in, "--json");
    if (json)
        done_json(in->arguments[0], all, after.shards, sound);
    if (sound && !json)
        printf("\n%s is sound now.\n", v->name);
    if (!sound && !json) {
        problems_print(v, &after);
        printf("\nThat is beyond repair here; millrace store dump shows what there is.\n");
    }
    findings_finish(&after);
    return sound ? CLI_DONE : CLI_FAILED;
}

static enum cli_exit decide(const struct input *in, const struct store_view *v,
                            const struct findings *f) {
    bool json = input_option(in, "--json");
    if (json && (!f->problem_count || input_option(in, "--dry-run"))) {
        plan_json(in->arguments[0], f);
        return CLI_DONE;
    }
    if (!f->problem_count) {
        printf("%s is sound; nothing was changed.\n", v->name);
        return CLI_DONE;
    }
    if (input_option(in, "--dry-run")) {
        plan_print(v, f);
        return CLI_DONE;
    }
    if (!json)
        problems_print(v, f);
    struct shard_repair *all = mem_alloc(f->shards * sizeof *all);
    int err =
        all ? repair_all(v, f, json, all) : error_set(MR_ENOMEM, "no memory to repair %s", v->name);
    enum cli_exit code = err < 0 ? store_failed(in, &v->url, err) : store_repair_finish(in, v, all);
    mem_free(all);
    return code;
}

enum cli_exit store_repair_run(const struct input *in) {
    const char *dir = store_dir(in, in->arguments[0]);
    if (!dir)
        return CLI_USAGE;
    int fd = -1;
    int err = store_hold(dir, &fd);
    if (fd >= 0)
        close(fd); // the repair takes the lock itself
    struct store_url url = store_in(dir);
    struct store_view v = { 0 };
    struct findings f;
    if (err >= 0)
        err = store_view_open(&url, &v);
    if (err >= 0)
        err = store_examine(&v, &f);
    if (err < 0)
        return store_failed(in, &url, err);
    enum cli_exit code = decide(in, &v, &f);
    findings_finish(&f);
    return code;
}
