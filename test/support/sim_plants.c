// See sim_plants.h.
#include "support/sim_plants.h"

#include "core/link.h"
#include "core/state.h"
#include "wire/request.h"

#include <assert.h>
#include <string.h>

// ---- Shards -------------------------------------------------------------------------------------

static void forget_link_marks(struct core *c) {
    for (uint32_t i = 0; i < c->link_count; i++)
        c->links[i].accepted = 0;
}

static void issue_ids_again(struct core *c, uint64_t *first_id) {
    if (*first_id)
        c->next_id = *first_id;
    else
        *first_id = c->next_id;
}

void plant_in_core(struct sim_place *p) {
    struct sim_nodes *w = p->node->all;
    struct core *c = shard_core(group_shard(p->group, p->shard));
    if (w->plant == PLANT_LINK_MARK)
        forget_link_marks(c);
    if (w->plant == PLANT_IDS_AGAIN)
        issue_ids_again(c, &w->first_ids[p->shard]);
}

void plant_in_replies(struct sim_place *p) {
    struct list *held = &p->host.held;
    if (p->node->all->plant != PLANT_BEFORE_DURABLE)
        return;
    for (struct list *l = held->next, *next; l != held; l = next) {
        next = l->next;
        session_release(list_entry(l, struct session, of_held), UINT64_MAX);
    }
}

// ---- Messages -----------------------------------------------------------------------------------

static void lose_returns(struct list *messages) {
    for (struct list *l = messages->next, *next; l != messages; l = next) {
        struct loop_message *m = list_entry(l, struct loop_message, of_inbox);
        next = l->next;
        if (m->kind != LOOP_RETURN)
            continue;
        list_remove(l);
        loop_message_free(m);
    }
}

static bool is_alike(const struct loop_message *a, const struct loop_message *b) {
    return a->remote != b->remote && a->count == b->count && a->bytes.size && b->bytes.size &&
           a->bytes.data[0] == b->bytes.data[0];
}

// Those of two connections, as many and of one kind.
static void cross_replies(struct list *messages) {
    struct loop_message *first = NULL;
    for (struct list *l = messages->next; l != messages; l = l->next) {
        struct loop_message *m = list_entry(l, struct loop_message, of_inbox);
        if (m->kind != LOOP_REPLIES || !m->count)
            continue;
        if (first && is_alike(first, m)) {
            struct buffer bytes = m->bytes;
            m->bytes = first->bytes;
            first->bytes = bytes;
            return;
        }
        first = m;
    }
}

void plant_in_inbox(struct sim_node *n, uint32_t loop) {
    struct list *messages = &n->loops.inboxes[loop].messages;
    if (n->all->plant == PLANT_SURPLUS)
        lose_returns(messages);
    if (n->all->plant == PLANT_CROSSED && loop == 0)
        cross_replies(messages);
}

// ---- Requests -----------------------------------------------------------------------------------

static size_t first_request(const struct host *h, const uint8_t *data, size_t size) {
    struct request reader = { 0 };
    uint32_t words;
    ptrdiff_t used =
        request_read(&reader, &h->request_limits, (uint8_t *)data, size, h->arguments, &words);
    assert(used > 0);
    return (size_t)used;
}

static void send_first_behind_next(const struct host *h, struct buffer *requests) {
    uint8_t *data = requests->data;
    size_t first = first_request(h, data, requests->size);
    size_t next = first_request(h, data + first, requests->size - first);
    struct buffer kept = { 0 };
    int err = buffer_append(&kept, data, first);
    assert(err == 0);
    memmove(data, data + first, next);
    memcpy(data + next, kept.data, first);
    buffer_finish(&kept);
}

// A remote session that is not made any more, although it once was, has moved.
void plant_in_requests(struct sim_node *n) {
    struct host *h = &n->front;
    if (n->all->plant != PLANT_OVERTAKES)
        return;
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        const struct session *s = list_entry(l, struct session, of_host);
        for (uint32_t i = 1; s->remotes && i <= SIM_SHARDS; i++) {
            struct remote *r = s->remotes[i];
            if (!r || r->is_made || !r->known.id || r->request_count < 2)
                continue;
            send_first_behind_next(h, &r->requests);
            r->known.id = 0;
        }
    }
}
