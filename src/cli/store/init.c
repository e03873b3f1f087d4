// millrace store init: makes the store of a cluster, or upgrades its tables.
#include "base/errors.h"
#include "cli/output.h"
#include "cli/store/store.h"
#include "cli/values.h"
#include "core/route.h"
#include "log/replicated.h"

#include <stdio.h>

static const char *made_words(enum store_made made) {
    switch (made) {
    case STORE_THERE:
        return "there is";
    case STORE_MADE:
        return "made";
    case STORE_UPGRADED:
        return "upgraded";
    }
    return "";
}

enum cli_exit store_init_run(const struct input *in) {
    struct store_url store;
    uint32_t shards = 1;
    enum store_made made = STORE_THERE;
    if (store_url_read(in->arguments[0], &store) < 0 || !store_is_replicated(&store)) {
        complain(
            "store init: a store that is made first is in a database or in NATS: "
            "postgres://USER@HOST/DATABASE, nats://HOST; others are made when they are opened");
        return CLI_USAGE;
    }
    if (!input_small_count(in, "--shards", SHARDS_MOST, &shards))
        return CLI_USAGE;
    store.cluster = input_option(in, "--cluster");
    int err = stream_store_make(&store, shards, &made);
    if (err < 0) {
        complain("store init: %s", error_text());
        return store_exit_of(err);
    }
    printf("%s cluster %s with %u shard%s\n", made_words(made),
           store.cluster ? store.cluster : STORE_CLUSTER, shards, shards == 1 ? "" : "s");
    return CLI_DONE;
}
