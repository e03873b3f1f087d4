// Commands between the nodes of a cluster, and about them.
#include "server/access.h"
#include "server/command.h"
#include "server/loops.h"
#include "server/node_link.h"
#include "wire/code.h"
#include "wire/number.h"

#include <stdio.h>
#include <string.h>

// ---- LINK ---------------------------------------------------------------------------------------

// Takes the same time wherever the first difference is.
static bool is_secret(mr_bytes given, const char *secret) {
    size_t size = strlen(secret);
    uint8_t differs = given.size != size || !size;
    for (size_t i = 0; i < given.size && i < size; i++)
        differs |= ((const uint8_t *)given.data)[i] ^ (uint8_t)secret[i];
    return !differs;
}

// False: the error was replied.
static bool link_fits(struct session *s, const mr_bytes *words) {
    const struct host *h = s->host;
    uint64_t version = 0, shards = 0;
    bool numbers = number_parse(words[2], &version) == 0 && number_parse(words[4], &shards) == 0;
    if (numbers && version != LINK_VERSION)
        session_usage(s,
                      "this node links with version %d, the other one with %u: run the same "
                      "release of millrace on all nodes",
                      LINK_VERSION, (unsigned)version);
    else if (!bytes_equal(words[3], mr_str(h->node->cluster)))
        session_usage(s, "this is a node of cluster %s", h->node->cluster);
    else if (!numbers || shards != h->shards)
        session_usage(s, "this cluster has %u shards", h->shards);
    else
        return true;
    return false;
}

// The connection carries frames from now on (node_link.h).
void run_link(struct session *s, struct arguments *a) {
    const struct host *h = s->host;
    struct node_link *link;
    s->closing = true; // unless it succeeds
    if (!h->node || !h->loops || !h->loops->is_cluster) {
        session_usage(s, "this server is no node of a cluster");
        return;
    }
    if (!is_secret(a->words[1], h->node->secret)) {
        reply_error(&s->reply, code_name(CODE_WRONGPASS),
                    mr_str("that is not the secret of the nodes"));
        return;
    }
    if (!link_fits(s, a->words))
        return;
    if (node_link_create(s, NULL, &link) < 0) {
        session_usage(s, "there is no memory for a link");
        return;
    }
    s->closing = false;
    session_offer(s);
}
