// millrace cluster: shows the nodes and shards of a cluster, drains nodes, moves shards. Any node
// is asked.
#include "cli/output.h"
#include "cli/show.h"
#include "cli/talk.h"

#include <stdio.h>
#include <strings.h>

// ---- status -------------------------------------------------------------------------------------

#define NODE(member) offsetof(struct node_reply, member)

static const struct column node_columns[] = {
    { NODE(address), "NODE", SHAPE_TEXT },
    { NODE(version), "VERSION", SHAPE_TEXT },
    { NODE(state), "STATE", SHAPE_TEXT },
    { NODE(shards), "SHARDS", SHAPE_NUMBER },
    { NODE(age_ms), "SEEN", SHAPE_AGE },
    { NODE(http), "PAGE", SHAPE_TEXT },
    { 0 },
};

#define SHARD(member) offsetof(struct shard_reply, member)

static const struct column shard_columns[] = {
    { SHARD(shard), "SHARD", SHAPE_NUMBER },     { SHARD(owner), "OWNER", SHAPE_TEXT },
    { SHARD(state), "STATE", SHAPE_TEXT },       { SHARD(epoch), "EPOCH", SHAPE_NUMBER },
    { SHARD(log_bytes), "LOG", SHAPE_SIZE },     { SHARD(age_ms), "SEEN", SHAPE_AGE },
    { SHARD(moved_to), "MOVED TO", SHAPE_TEXT }, { 0 },
};

static const struct cli_listing nodes_listing = { &node_replies, node_columns,
                                                  "no node was seen yet" };
static const struct cli_listing shards_listing = { &shard_replies, shard_columns,
                                                   "there are no shards" };

static enum cli_exit answer_status(const struct input *in, const struct response_value *reply) {
    const struct response_value *nodes = response_field(reply, "nodes");
    const struct response_value *shards = response_field(reply, "shards");
    if (input_option(in, "--json"))
        return show_map(in, reply);
    if (nodes && nodes->type == RESPONSE_ARRAY)
        (void)show_rows(in, &nodes_listing, nodes);
    printf("\n");
    if (shards && shards->type == RESPONSE_ARRAY)
        (void)show_rows(in, &shards_listing, shards);
    return CLI_DONE;
}

enum cli_exit cluster_status_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "CLUSTER");
    words_text(&w, "STATUS");
    return talk_once(in, STORE_MUST_EXIST, &w, answer_status);
}

// ---- drain, move --------------------------------------------------------------------------------

static void json_done(const char *name, const char *value, const char *node) {
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    json_text(&j, name, value);
    if (node)
        json_text(&j, "node", node);
    json_flag(&j, "ok", true);
    json_close(&j, '}');
    json_end(&j);
}

static enum cli_exit answer_drain(const struct input *in, const struct response_value *reply) {
    (void)reply;
    if (input_option(in, "--json"))
        json_done("node", in->arguments[0], NULL);
    else
        printf("%s drains: its shards go to other nodes, until it is restarted\n",
               in->arguments[0]);
    return CLI_DONE;
}

enum cli_exit cluster_drain_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "CLUSTER");
    words_option(&w, "DRAIN", in->arguments[0]);
    return talk_once(in, STORE_MUST_EXIST, &w, answer_drain);
}

static enum cli_exit answer_move(const struct input *in, const struct response_value *reply) {
    const char *shard = in->arguments[0], *node = in->arguments[1];
    (void)reply;
    if (input_option(in, "--json"))
        json_done("shard", shard, node);
    else if (strcasecmp(node, "any") == 0)
        printf("shard %s goes to any node again\n", shard);
    else
        printf("shard %s goes to %s\n", shard, node);
    return CLI_DONE;
}

enum cli_exit cluster_move_run(const struct input *in) {
    struct words w = { 0 };
    words_text(&w, "CLUSTER");
    words_option(&w, "MOVE", in->arguments[0]);
    words_text(&w, in->arguments[1]);
    return talk_once(in, STORE_MUST_EXIST, &w, answer_move);
}
