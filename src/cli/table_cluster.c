// The rows of `millrace cluster`.
#include "cli/table.h"

const struct cli_command cluster_commands[] = {
    {
        .name = "cluster status",
        .arguments = "",
        .doc = "show the nodes and shards of a cluster",
        .help = "One line for each node: where it is, its version, whether it serves, drains or\n"
                "is lost, how many shards it owns, and when it was last seen. One line for each\n"
                "shard: its owner, and whether that serves it, is opening it (it reads the log),\n"
                "is leaving it to another node, or is unlinked (the node that was asked has no\n"
                "connection to it), or whether it is unowned; how often it was claimed (EPOCH),\n"
                "the size of its log, and when an owner was last seen. Any node answers.\n",
        .examples = "millrace cluster status\n"
                    "millrace cluster status --json | jq '.shards[] | .owner'\n",
        .options = { AT, JSON },
        .run = cluster_status_run,
    },
    {
        .name = "cluster drain",
        .arguments = "NODE",
        .least = 1,
        .most = 1,
        .doc = "hand the shards of a node over to others",
        .help = "NODE is an address, as millrace cluster status shows it. Running jobs may end\n"
                "first, as when a server stops. The node still passes on what its clients send;\n"
                "when it is restarted it gets shards again. Returns at once.\n",
        .examples = "millrace cluster drain 127.0.0.1:7421\n",
        .options = { AT, JSON },
        .run = cluster_drain_run,
    },
    {
        .name = "cluster move",
        .arguments = "SHARD NODE",
        .least = 2,
        .most = 2,
        .doc = "choose the node that owns a shard",
        .help = "SHARD is a number, from 0; NODE is an address, as millrace cluster status shows\n"
                "it, or 'any': then the cluster chooses again, so that nodes own equal numbers of\n"
                "shards. While NODE is lost or drains, another one owns the shard. Returns at\n"
                "once.\n",
        .examples = "millrace cluster move 0 127.0.0.1:7421\n"
                    "millrace cluster move 0 any\n",
        .options = { AT, JSON },
        .run = cluster_move_run,
    },
    { 0 },
};
