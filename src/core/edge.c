// Edges: which stage was seen to emit to which. Back pressure needs them: a stage whose downstream
// is over its high mark is held, unless the edge is part of a cycle, where that could hold all.
//
//     from.edges ──► edge ──► to          an edge is in the list of its target, too
//
// Edges are not recorded: they are learned again with the next emits.
#include "core/limit.h"

static bool has_edge(const struct stage *s, uint32_t to) {
    for (uint32_t i = 0; i < s->edge_count; i++)
        if (s->edges[i].to == to)
            return true;
    return false;
}

static struct stage_edge *edge_add(struct core *c, struct stage *s, uint32_t to) {
    struct stage_edge *e = &s->edges[s->edge_count++];
    *e = (struct stage_edge){ .from = s->number, .to = to };
    list_init(&e->of_target);
    list_append(&c->stages[to]->edges_here, &e->of_target);
    return e;
}

// The last edge of the stage takes its place.
static void edge_remove(struct core *c, struct stage_edge *e) {
    struct stage *s = c->stages[e->from];
    struct stage_edge *last = &s->edges[--s->edge_count];
    list_remove(&e->of_target);
    if (e == last)
        return;
    e->to = last->to;
    e->in_cycle = last->in_cycle;
    list_remove(&last->of_target);
    list_append(&c->stages[e->to]->edges_here, &e->of_target);
}

// `in_cycle` of other edges is not updated before the next search comes by: until then fewer stages
// may be held than necessary.
void stage_drop_edges(struct core *c, struct stage *s) {
    while (s->edge_count)
        edge_remove(c, &s->edges[s->edge_count - 1]);
    for (struct list *l; (l = list_first(&s->edges_here)) != NULL; c->steps++)
        edge_remove(c, list_entry(l, struct stage_edge, of_target));
}

void stage_wake_around(struct core *c, struct stage *s) {
    stage_wake(c, s);
    for (struct list *l = s->edges_here.next; l != &s->edges_here; l = l->next, c->steps++)
        stage_wake(c, c->stages[list_entry(l, struct stage_edge, of_target)->from]);
}

bool stage_in_cycle(const struct stage *s) {
    for (uint32_t i = 0; i < s->edge_count; i++)
        if (s->edges[i].in_cycle)
            return true;
    return false;
}

// ---- Cycles -----------------------------------------------------------------------------------

enum { EDGES_SEARCHED = 4096 }; // edges that are followed for one that is new

// Finds the components of all stages that are reached from one: Tarjan's algorithm.
struct cycle_search {
    struct core *core;
    uint32_t visited, depth, open;           // counts of these arrays of stages
    uint16_t all[EDGES_SEARCHED + 1];        // in the order in which they were reached
    uint16_t path[EDGES_SEARCHED + 1];       // from the first one to the present one
    uint16_t unassigned[EDGES_SEARCHED + 1]; // those without a component yet
};

static void search_enter(struct cycle_search *f, struct stage *s) {
    s->search = (struct stage_search){ .number = f->core->searches,
                                       .index = f->visited,
                                       .low = f->visited };
    s->search.component = UINT32_MAX;
    f->all[f->visited++] = f->path[f->depth++] = f->unassigned[f->open++] = (uint16_t)s->number;
}

static void search_lower(struct stage *s, uint32_t low) {
    s->search.low = low < s->search.low ? low : s->search.low;
}

// All edges of the last stage of the path were followed.
static void search_leave(struct cycle_search *f) {
    struct stage **stages = f->core->stages, *s = stages[f->path[--f->depth]], *member = NULL;
    if (f->depth)
        search_lower(stages[f->path[f->depth - 1]], s->search.low);
    if (s->search.low < s->search.index)
        return;
    while (member != s) {
        assert(f->open); // a stage of the path has no component yet: s is among them
        member = stages[f->unassigned[--f->open]];
        member->search.component = s->search.index;
    }
}

// False: there are too many.
static bool search_from(struct cycle_search *f, struct core *c, struct stage *first) {
    f->core = c;
    f->visited = f->depth = f->open = 0;
    c->searches++;
    search_enter(f, first);
    for (uint32_t followed = 0; f->depth;) {
        struct stage *s = c->stages[f->path[f->depth - 1]];
        if (s->search.next == s->edge_count) {
            search_leave(f);
            continue;
        }
        if (followed++ == EDGES_SEARCHED)
            return false;
        c->steps++;
        struct stage *to = c->stages[s->edges[s->search.next++].to];
        if (to->search.number != c->searches)
            search_enter(f, to);
        else if (to->search.component == UINT32_MAX)
            search_lower(s, to->search.index);
    }
    return true;
}

// A stage that was held by an edge of a cycle may start.
static void edge_set_in_cycle(struct core *c, struct stage *s, struct stage_edge *e, bool in) {
    if (in && !e->in_cycle)
        stage_wake(c, s);
    e->in_cycle = in;
}

// Stages are in one cycle if they are of one component. In a very large graph the new edge alone
// counts as part of a cycle: so not every edge of a cycle can hold.
static void find_cycles(struct core *c, struct stage_edge *new_edge) {
    struct cycle_search f;
    struct stage *from = c->stages[new_edge->from];
    if (list_empty(&from->edges_here))
        return; // it is not reached by any edge
    if (!search_from(&f, c, from)) {
        edge_set_in_cycle(c, from, new_edge, true);
        return;
    }
    for (uint32_t i = 0; i < f.visited; i++) {
        struct stage *s = c->stages[f.all[i]];
        for (uint32_t k = 0; k < s->edge_count; k++) {
            const struct stage *to = c->stages[s->edges[k].to];
            edge_set_in_cycle(c, s, &s->edges[k], to->search.component == s->search.component);
        }
    }
}

int stage_learn_edge(struct core *c, uint32_t from, uint32_t to) {
    struct stage *s = c->stages[from];
    const struct stage *d = c->stages[to];
    if (has_edge(s, to) || s->edge_count == CORE_EDGES)
        return 0;
    int err = 0;
    if (c->config.peers.edge)
        err = c->config.peers.edge(c->config.peers.owner, bytes_of(s->name, s->name_size),
                                   bytes_of(d->name, d->name_size), c->maker);
    if (err < 0)
        return err;
    find_cycles(c, edge_add(c, s, to));
    return 0;
}
