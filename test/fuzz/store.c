// Stores of any content with right sums: whatever segments, indexes, the store file, the file of
// running jobs and the layout say, a store is examined, opened or refused; a repair makes it one
// that opens, keeps every rule, works, is cleaned, and opens again.
//
// An input is a list of pieces: a byte that says what comes, a byte for the size, and the bytes.
// Sums are put right, so that wrong content gets past them; see `pieces`.
#include "../support/sim_disk.c"

#include "base/errors.h"
#include "core/record.h"
#include "log/segment.h"
#include "shard/group.h"
#include "shard/repair.h"
#include "shard/running.h"

#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEGMENT = 4096, SEGMENTS = 4, FILE_MOST = 2 * SEGMENT, STEPS = 12 };

static const char dir[] = "/s";

// What is being put together.
static struct {
    uint8_t segments[SEGMENTS][SEGMENT], indexes[SEGMENTS][FILE_MOST], store[1024], shards[64];
    size_t ends[SEGMENTS], index_sizes[SEGMENTS], shards_size;
    uint32_t last; // the segment that pieces go to
    bool in_group, has_running, no_store;
    uint8_t running[256];
    size_t running_size;
} made;

// ---- Numbers out of an input ------------------------------------------------------------------

struct piece {
    const uint8_t *data;
    size_t size, at;
};

static uint8_t next(struct piece *p) {
    return p->at < p->size ? p->data[p->at++] : 0;
}

// Small ones, that meet one another; or large ones, at the borders.
static uint64_t next_number(struct piece *p) {
    uint8_t b = next(p);
    if (b < 224)
        return b % 16;
    uint64_t high = UINT64_C(1) << (b - 192); // from 2^32 to 2^63
    return high - next(p) % 3 + 1;
}

// ---- Segments ---------------------------------------------------------------------------------

static uint64_t base_of(uint32_t segment) {
    return (uint64_t)segment * SEGMENT;
}

static void header_make(uint32_t segment, uint64_t number, uint64_t size, uint64_t capacity) {
    uint8_t *raw = made.segments[segment];
    memset(raw, 0, SEGMENT_START);
    memcpy(raw, "MRSEGMNT", 8);
    store_u32(raw + 8, LOG_FORMAT);
    store_u64(raw + 16, number);
    store_u64(raw + 24, size);
    store_u64(raw + 32, capacity);
    store_u64(raw + 56, XXH3_64bits(raw, 56));
}

static void slot_make(uint32_t slot, uint64_t size, uint64_t first, uint64_t generation) {
    uint8_t *raw = made.store + slot * 512;
    memset(raw, 0, 512);
    memcpy(raw, "MILLRACE", 8);
    store_u32(raw + 8, LOG_FORMAT);
    store_u64(raw + 16, size);
    store_u64(raw + 24, first);
    store_u64(raw + 32, generation);
    store_u64(raw + 504, XXH3_64bits(raw, 504));
}

static void add_entry(mr_bytes head, size_t body_size, uint8_t group) {
    static const uint8_t body[64];
    struct entry e = { .head = head, .body = { body, body_size } };
    size_t need = entry_size(head.size, body_size), *end = &made.ends[made.last];
    if (*end + need > SEGMENT)
        return;
    uint32_t flags = made.in_group ? 0 : FRAME_FIRST;
    made.in_group = group % 4 == 1; // others follow
    flags |= made.in_group ? 0 : FRAME_LAST;
    frame_put(made.segments[made.last] + *end, base_of(made.last) + *end, &e, flags, group);
    *end += need;
}

// A head of any bytes.
static void add_head(struct piece *p) {
    uint8_t group = next(p), body = next(p);
    add_entry((mr_bytes){ p->data + p->at, p->size - p->at }, body % 64, group);
}

// Value number `index` of a policy, over all rows; NULL: there are not so many.
static uint64_t *policy_number(struct policy *policy, size_t index) {
    const struct policy_row *row;
    for (size_t i = 0; (row = policy_row(i)) != NULL; index -= policy_row_values(row), i++)
        if (index < policy_row_values(row))
            return policy_at(policy, &row->values[index]);
    return NULL;
}

static void fill_about(struct piece *p, struct record_about *about) {
    struct policy *policy = &about->stage.policy;
    *about = (struct record_about){ .stage.policy = policy_default() };
    uint64_t *const fields[] = {
        &about->stage.pushed,    &about->stage.done,  &about->source.highest,
        &about->source.accepted, &about->source.dead, &about->source.total,
    };
    enum { FIELDS = sizeof fields / sizeof *fields };
    uint8_t which = next(p) % 32;
    uint64_t *number = which < FIELDS ? fields[which] : policy_number(policy, which - FIELDS);
    if (number)
        *number = next_number(p);
    about->source.epic = which & 1;
}

static void fill_schedule(struct piece *p, struct record_about *about) {
    static const char *const texts[] = { "", "@daily", "30 2 * * *", "UTC", "61 * * * *" };
    *about = (struct record_about){ 0 };
    about->schedule = (struct record_schedule){ .every_ms = next_number(p),
                                                .missed = next(p) % 4,
                                                .deadline_ms = next_number(p),
                                                .cron = mr_str(texts[next(p) % 5]),
                                                .zone = mr_str(texts[next(p) % 5]),
                                                .meta_size = next(p) % 32 };
    about->move = (struct record_move){ .next_ms = next_number(p),
                                        .last_ms = next_number(p),
                                        .pushed = next_number(p),
                                        .last_id = next_number(p),
                                        .paused = next(p) & 1,
                                        .asked = next(p) & 1 };
}

static void fill_orders(struct piece *p, struct record_about *about) {
    static const char *const texts[] = { "", "s", "t", "no stage" };
    *about = (struct record_about){ 0 };
    about->epic = (struct record_epic){ .cancelled = next(p) & 1,
                                        .pushed = next(p) & 1 ? next_number(p) : 0,
                                        .forget_ms = next(p) & 1 ? next_number(p) * 1000 : 0,
                                        .ended_ms = next_number(p),
                                        .then = mr_str(texts[next(p) % 4]),
                                        .body = mr_str(texts[next(p) % 4]) };
}

// A record whose fields are likely to fit those of others.
static void add_record(struct piece *p) {
    static const char *const texts[] = { "", "s", "t", "k", "l", "e" };
    struct record_about about;
    uint8_t kind = next(p), group = next(p), status = next(p), text = next(p), flags = next(p);
    struct record r = { .kind = (enum record_kind)(kind % RECORD_LAST + 1),
                        .copy = flags & 1,
                        .call = flags & 2,
                        .has_once = flags & 4,
                        .status = (enum job_status)(status % (JOB_CANCELLED + 1)),
                        .name = mr_str(texts[text % 6]),
                        .key = mr_str(texts[text / 6 % 6]),
                        .about = &about };
    r.id = next_number(p);
    r.stage = (uint32_t)next_number(p) % 20000;
    r.time_ms = next_number(p);
    r.pushed_ms = next_number(p);
    r.due_ms = flags & 8 ? next_number(p) : 0;
    r.deadline_ms = flags & 16 ? next_number(p) : 0;
    r.position = next_number(p);
    r.attempt = (uint32_t)next_number(p);
    r.attempts = flags & 32 ? (uint32_t)next_number(p) : 0;
    bool of_source =
        r.kind == RECORD_SOURCE || r.kind == RECORD_SOURCE_OLD || r.kind == RECORD_EPIC;
    r.source = flags & 64 || of_source ? next_number(p) : 0;
    r.number = flags & 64 || r.kind >= RECORD_OUTBOX ? next_number(p) : 0;
    r.once.low = next(p) % 3;
    r.shard = next(p) % 4;
    r.epoch = next_number(p);
    r.next_id = next_number(p);
    r.upto = next_number(p) * 64;
    r.maker = group & 64 ? r.epoch : 0;
    if (r.kind == RECORD_STAGE || r.kind == RECORD_SOURCE || r.kind == RECORD_SOURCE_OLD)
        fill_about(p, &about);
    if (r.kind == RECORD_SCHEDULE || r.kind == RECORD_SCHEDULE_MOVE)
        fill_schedule(p, &about);
    if (r.kind == RECORD_EPIC)
        fill_orders(p, &about);
    uint8_t head[RECORD_MAX];
    add_entry((mr_bytes){ head, record_encode(&r, head) }, flags & 128 ? 24 : 0, group);
}

static void add_mark(struct piece *p) {
    uint8_t what = next(p);
    size_t *end = &made.ends[made.last], need = (ENTRY_FRAME + (size_t)next(p) + 7) & ~(size_t)7;
    if (*end + need > SEGMENT)
        return;
    frame_put_mark(made.segments[made.last] + *end, base_of(made.last) + *end,
                   what & 1 ? FRAME_SKIP : FRAME_SEAL, need, 0);
    *end += need;
}

// The segment is sealed, and what follows goes to the next.
static void add_segment(struct piece *p) {
    if (!(next(p) & 1) && made.ends[made.last] + ENTRY_FRAME <= SEGMENT)
        frame_put_mark(made.segments[made.last] + made.ends[made.last],
                       base_of(made.last) + made.ends[made.last], FRAME_SEAL, ENTRY_FRAME, 0);
    if (made.last + 1 < SEGMENTS)
        made.last++;
    made.in_group = false;
}

static void add_bytes(struct piece *p) {
    size_t *end = &made.ends[made.last], size = p->size;
    if (*end + size > SEGMENT)
        return;
    memcpy(made.segments[made.last] + *end, p->data, size);
    *end += (size + 7) & ~(size_t)7;
    *end = *end < SEGMENT ? *end : SEGMENT;
}

static void change_header(struct piece *p) {
    uint64_t number = next_number(p), size = next_number(p), capacity = next_number(p);
    uint8_t which = next(p);
    header_make(made.last, which & 1 ? number : made.last, which & 2 ? size : SEGMENT,
                which & 4 ? capacity : SEGMENT);
}

static void change_store(struct piece *p) {
    uint8_t which = next(p);
    uint64_t size = next_number(p), first = next_number(p), generation = next_number(p);
    made.no_store = which & 8;
    slot_make(which & 1, which & 2 ? size : SEGMENT, which & 4 ? first : 0, generation);
}

// An index of the frames that the segment has, of which the input changes some bytes.
static void add_index(struct piece *p) {
    uint8_t *raw = made.indexes[made.last], *to = raw + 64;
    const uint8_t *segment = made.segments[made.last];
    uint64_t count = 0, at = SEGMENT_START;
    struct log_frame f;
    for (; at + ENTRY_FRAME <= SEGMENT && frame_get(segment + at, &f) && frame_is_entry(&f);
         at += frame_size(&f), count++) {
        if (frame_size(&f) > SEGMENT - at)
            break;
        store_u32(to, (uint32_t)(at / 8));
        store_u32(to + 4, f.head_size);
        store_u32(to + 8, f.body_size);
        memcpy(to + 12, segment + at + ENTRY_FRAME, f.head_size);
        to += 12 + f.head_size;
    }
    size_t size = (size_t)(to - raw) - 64;
    uint8_t which = next(p);
    while (p->at + 2 <= p->size && size) {
        size_t place = next(p);
        raw[64 + place % size] ^= next(p);
    }
    memset(raw, 0, 64);
    memcpy(raw, "MRINDEX\n", 8);
    store_u32(raw + 8, LOG_FORMAT);
    store_u64(raw + 16, made.last);
    store_u64(raw + 24, which & 1 ? count + which : count);
    store_u64(raw + 32, size);
    store_u64(raw + 40, which & 2 ? (uint64_t)which << 56 : at);
    store_u64(raw + 48, XXH3_64bits_withSeed(raw + 64, size, 0));
    store_u64(raw + 56, XXH3_64bits(raw, 56));
    made.index_sizes[made.last] = 64 + size;
}

static void add_beside(struct piece *p) {
    bool layout = next(p) & 1;
    size_t left = p->size - p->at;
    if (layout) {
        made.shards_size = left < sizeof made.shards ? left : sizeof made.shards;
        memcpy(made.shards, p->data + p->at, made.shards_size);
    } else {
        made.has_running = true;
        made.running_size = left < sizeof made.running ? left : sizeof made.running;
        memcpy(made.running, p->data + p->at, made.running_size);
    }
}

static void (*const pieces[])(struct piece *) = {
    add_record,    add_record,   add_record, add_head,    add_mark,   add_bytes,
    change_header, change_store, add_index,  add_segment, add_beside,
};

static void make(const uint8_t *data, size_t size) {
    memset(&made, 0, sizeof made);
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        header_make(i, i, SEGMENT, SEGMENT);
        made.ends[i] = SEGMENT_START;
    }
    slot_make(0, SEGMENT, 0, 0);
    slot_make(1, SEGMENT, 0, 1);
    for (size_t at = 0; at + 2 <= size;) {
        uint8_t what = data[at], asked = data[at + 1];
        at += 2;
        struct piece p = { data + at, asked < size - at ? asked : size - at, 0 };
        pieces[what % (sizeof pieces / sizeof *pieces)](&p);
        at += p.size;
    }
}

// ---- On a disk --------------------------------------------------------------------------------

static void put(const struct disk *d, const char *name, const void *data, size_t size) {
    char path[LOG_PATH];
    path_make(path, dir, name);
    int fd = d->open(d, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert(fd >= 0);
    int err = disk_write_all(d, fd, data, size, 0);
    assert(err == 0);
    d->sync(d, fd);
    d->close(d, fd);
}

static struct sim_disk *disk_of_made(bool with_layout) {
    struct sim_disk *sim = sim_disk_create();
    const struct disk *d = sim_disk_disk(sim);
    char name[32];
    d->make_dir(d, dir);
    for (uint32_t i = 0; i <= made.last; i++) {
        snprintf(name, sizeof name, "%016x.seg", i);
        put(d, name, made.segments[i], SEGMENT);
        snprintf(name, sizeof name, "%016x.idx", i);
        if (made.index_sizes[i])
            put(d, name, made.indexes[i], made.index_sizes[i]);
    }
    if (!made.no_store)
        put(d, "store", made.store, sizeof made.store);
    if (with_layout && made.shards_size)
        put(d, "shards", made.shards, made.shards_size);
    return sim;
}

static void ignore_problem(void *arg, const struct log_problem *p) {
    (void)arg, (void)p;
}

static uint64_t still(void *arg) {
    (void)arg;
    return 1000;
}

static int try_group(const struct disk *d, struct group **out) {
    struct group_options o = { .store = store_in(dir),
                               .log = { .disk = d, .inline_writer = true },
                               .world = { still, still, still, NULL } };
    return group_open(&o, out);
}

static void work(struct shard *s) {
    struct core *c = shard_core(s);
    struct push push = { .stage = mr_str("s"), .job.key = mr_str("k"), .body = mr_str("work") };
    struct pushed pushed;
    struct conn conn = { 0 };
    mr_bytes stage = mr_str("s");
    core_join(c, &conn);
    for (int i = 0; i < STEPS && shard_begin(s) == 0; i++) {
        struct take take = { .stages = &stage, .stage_count = 1, .count = 4, .conn = &conn };
        struct grant grants[4];
        size_t count = 0;
        bool more;
        (void)core_push(c, &push, &pushed);
        if (core_take(c, &take, grants, &count) == 0)
            for (size_t k = 0; k < count; k++)
                (void)core_done(c, &(struct done){ .id = grants[k].id, .token = grants[k].token });
        (void)shard_clean(s, &more);
        shard_end(s);
    }
    (void)core_leave(c, &conn);
    int err = core_check(c);
    assert(err == 0);
}

static void expect_opens(const struct disk *d, const char *when) {
    struct group *g = NULL;
    int err = try_group(d, &g);
    if (err < 0)
        fprintf(stderr, "%s: %s\n", when, error_text());
    assert(err == 0);
    err = core_check(shard_core(group_shard(g, 0)));
    if (err < 0)
        fprintf(stderr, "%s: %s\n", when, error_text());
    assert(err == 0);
    work(group_shard(g, 0));
    group_close(g);
}

static void examine(const struct disk *d) {
    struct group *g = NULL;
    uint32_t shards;
    (void)log_file_check(dir, d, NULL, ignore_problem, NULL);
    (void)layout_read(d, dir, &shards);
    if (try_group(d, &g) == 0) {
        for (uint32_t i = 0; i < group_count(g); i++)
            work(group_shard(g, i));
        group_close(g);
        expect_opens(d, "opened before");
    }
}

static void repair(const struct disk *d) {
    struct shard_repair done;
    int err = shard_repair(&(struct shard_place){ .dir = dir, .disk = d, .shards = 1 }, &done);
    if (err < 0)
        fprintf(stderr, "repair: %s\n", error_text());
    assert(err == 0);
    expect_opens(d, "repaired");
    expect_opens(d, "once more");
}

static int note_left(void *arg, uint64_t id, uint32_t attempt) {
    (void)arg, (void)attempt;
    assert(id);
    return 0;
}

// The file of running jobs is mapped, so it is a real one.
static void look_at_running(void) {
    static char folder[] = "/tmp/fuzz-store-XXXXXX";
    static bool made_folder;
    char path[64];
    struct running *r;
    if (!made_folder && !mkdtemp(folder))
        abort();
    made_folder = true;
    snprintf(path, sizeof path, "%s/running", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ssize_t n = write(fd, made.running, made.running_size);
    close(fd);
    if (n < 0 || running_open(folder, &r) < 0)
        abort();
    int err = running_each_left(r, note_left, NULL);
    assert(err == 0);
    running_forget_left(r);
    running_begin(r, 1, 1);
    running_close(r, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    make(data, size);
    struct sim_disk *looked_at = disk_of_made(true), *repaired = disk_of_made(false);
    examine(sim_disk_disk(looked_at));
    repair(sim_disk_disk(repaired));
    if (made.has_running)
        look_at_running();
    sim_disk_destroy(looked_at);
    sim_disk_destroy(repaired);
    return 0;
}
