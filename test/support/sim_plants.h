// Planted mistakes of simulated nodes: what the code of a node would do wrong is done to its memory
// or to its messages, from outside, so that no code of src knows of it. Each function does nothing
// unless its mistake was chosen (sim_nodes.plant).
#ifndef TEST_SUPPORT_SIM_PLANTS_H
#define TEST_SUPPORT_SIM_PLANTS_H

#include "support/sim_nodes.h"

// The shard was opened and replayed: it forgets a part of that.
void plant_in_core(struct sim_place *);
// Before the loop handles the messages in its inbox: some are lost or exchanged.
void plant_in_inbox(struct sim_node *, uint32_t loop);
// Before the first loop sends the requests that it has collected: they change their order.
void plant_in_requests(struct sim_node *);
// After a turn of a shard: replies do not wait for its log.
void plant_in_replies(struct sim_place *);

#endif
