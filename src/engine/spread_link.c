// Links: the thread of a shard carries what its commits have emitted to other shards.
//
//     here, locked     gather what was not accepted yet           position p, numbers up to n
//     no lock          wait until p is durable; read the bodies
//     there, locked    core_link_accept, one by one               position q
//     here, locked     core_link_arrived: they count there now
//     no lock          wait until q is durable
//     here, locked     core_link_acked up to n
//
// A crash at any point, or a step that failed, only means that some are carried again: the receiver
// knows them. One thread does this for a link, so entries arrive in order.
#include "engine/spread.h"

enum { CARRY_MOST = 256, CARRY_BYTES = 1 << 20, REST_MS = 100 };

// What is carried at once; their names and bodies lie in `text`, one after another.
struct load {
    uint32_t count;
    struct link_entry entries[CARRY_MOST];
    struct buffer text;
    size_t name_at[CARRY_MOST], body_at[CARRY_MOST + 1];
    uint64_t position; // must be durable here before they leave
};

// ---- Gathering --------------------------------------------------------------------------------

// With the lock. The names are the core's until the next command: they are copied.
static int gather_one(struct load *load, const struct link_entry *entry) {
    uint32_t i = load->count;
    load->entries[i] = *entry;
    load->name_at[i] = load->text.size;
    int err = buffer_append(&load->text, entry->stage.data, entry->stage.size);
    if (err >= 0)
        err = buffer_append(&load->text, entry->key.data, entry->key.size);
    if (err >= 0)
        err = buffer_append(&load->text, entry->once.data, entry->once.size);
    if (err >= 0)
        load->count++;
    return err;
}

static int gather(struct local *e, uint32_t to, struct load *load) {
    struct link_entry entry;
    int err = 0;
    load->count = 0;
    load->position = e->position;
    buffer_clear(&load->text);
    for (uint64_t after = 0; load->count < CARRY_MOST; after = entry.number) {
        if (!core_link_next(e->core, to, after, &entry))
            break;
        err = gather_one(load, &entry);
        if (err < 0)
            break;
    }
    return load->count ? 0 : err;
}

// Without the lock: as many bodies as may be carried at once. MR_EGONE: the cleaner has moved the
// first one, gather again.
static int read_bodies(const struct local *e, struct load *load) {
    size_t from = load->text.size;
    for (uint32_t i = 0; i < load->count; i++) {
        load->body_at[i] = load->text.size;
        bool full = i > 0 && load->text.size - from > CARRY_BYTES;
        int err = full ? MR_EGONE : shard_read(e->shard, load->entries[i].at, &load->text);
        load->body_at[i + 1] = load->text.size;
        if (err < 0 && i == 0)
            return err;
        if (err < 0)
            load->count = i;
    }
    return 0;
}

// ---- Handing over -----------------------------------------------------------------------------

// Its names where they lie now.
static struct link_entry entry_at(const struct load *load, uint32_t i) {
    struct link_entry entry = load->entries[i];
    const uint8_t *names = load->text.data + load->name_at[i];
    entry.stage.data = names;
    entry.key.data = names + entry.stage.size;
    entry.once.data = names + entry.stage.size + entry.key.size;
    return entry;
}

// `out_upto`: the highest number that is now there, durably if it is so up to `out_at`.
static int hand_over(struct local *to, uint32_t from, const struct load *load, uint64_t *out_upto,
                     uint64_t *out_at) {
    uint64_t upto = 0;
    int err = local_begin(to);
    if (err < 0)
        return err;
    for (uint32_t i = 0; err >= 0 && i < load->count; i++) {
        struct link_entry entry = entry_at(load, i);
        mr_bytes body = { load->text.data + load->body_at[i],
                          load->body_at[i + 1] - load->body_at[i] };
        err = core_link_accept(to->core, from, &entry, body);
        upto = err >= 0 ? entry.number : upto;
    }
    *out_upto = upto;
    *out_at = local_end(to);
    return upto ? 0 : err;
}

static void tell_arrived(struct local *e, uint32_t to, uint64_t upto) {
    (void)local_enter(e); // what counts is right also when the log has stopped
    core_link_arrived(e->core, to, upto);
    local_end(e);
}

// Without a lock.
static int deliver(struct local *e, uint32_t to, const struct load *load, uint64_t *out_upto) {
    struct local *there = e->spread->locals[to];
    uint64_t at = 0;
    int err = hand_over(there, e->index, load, out_upto, &at);
    if (err < 0)
        return err;
    (void)spread_pass_notes(there); // before they count here no longer; else its thread does it
    tell_arrived(e, to, *out_upto);
    return local_show(there, at, 0);
}

// With the lock, which it gives up meanwhile. 1: there may be more; 0: there is none.
static int carry(struct local *e, uint32_t to, struct load *load) {
    int err = gather(e, to, load);
    if (err < 0 || !load->count)
        return err;
    uint64_t upto = 0;
    pthread_mutex_unlock(&e->lock);
    err = local_show(e, load->position, 0);
    if (err >= 0)
        err = read_bodies(e, load);
    if (err >= 0)
        err = deliver(e, to, load, &upto);
    int entered = local_enter(e);
    if (err >= 0 && entered >= 0)
        err = core_link_acked(e->core, to, upto);
    local_end_keep(e);
    err = entered < 0 ? entered : err;
    return err == MR_EGONE || err >= 0 ? 1 : err;
}

// One load for each shard, then the thread has other things to do. What failed is tried again a
// while later; the other links go on meanwhile.
void spread_pump(struct local *e) {
    struct load load; // large: gather fills in what counts
    load.text = (struct buffer){ 0 };
    bool more = false, failed = false;
    e->links_due = false;
    for (uint32_t to = 0; to < e->spread->count && !e->closing && !e->stopped; to++) {
        int left = to == e->index ? 0 : carry(e, to, &load);
        more = more || left > 0;
        failed = failed || left < 0;
    }
    buffer_finish(&load.text);
    e->links_due = e->links_due || more || failed;
    if (failed && !more && !e->stopped && !e->closing)
        local_sleep(e, &e->due, local_until(REST_MS));
}
