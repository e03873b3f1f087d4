// Any text as a URL of an engine, of a store, of a store in NATS, and as the address of a node. A
// refusal never repeats what stands in front of an @.
#include "wire/url.h"
#include "base/errors.h"
#include "input.h"
#include "server/node_link.h"

// Only builds with NATS have this object; it needs nothing of NATS.
#define nats_url_read nats_url_read_here
#include "log/nats_url.c"

#define SECRET "s3cret-mark" // stands in front of the last @

static void check_refusal(const char *text) {
    assert(*error_text());
    assert(!strstr(text, "://") || !strstr(text, SECRET "@") || !strstr(error_text(), SECRET));
}

static void check_engine(const char *text) {
    struct engine_url url;
    if (url_read(text, &url) < 0) {
        check_refusal(text);
        return;
    }
    assert(url.local == (url.node_count == 0));
    assert(url.node_count <= URL_NODES);
    assert(memchr(url.where, 0, sizeof url.where) && memchr(url.place, 0, sizeof url.place));
    assert(memchr(url.secret, 0, sizeof url.secret) && memchr(url.user, 0, sizeof url.user));
    for (uint32_t i = 0; i < url.node_count; i++)
        assert(*url.nodes[i].host);
    assert(!url.local || url_is_of_server(text) == false);
}

static void check_nats(const char *text) {
    static struct nats_url url;
    if (nats_url_read(text, &url) < 0) {
        check_refusal(text);
        return;
    }
    assert(url.count >= 1 && url.count <= NATS_SERVERS_MOST);
    for (uint32_t i = 0; i < url.count; i++)
        assert(strncmp(url.servers[i], NATS_SCHEME, strlen(NATS_SCHEME)) == 0);
    assert(url.replicas <= NATS_REPLICAS_MOST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *plain = input_string(data, size), *at = strrchr(plain, '@'), *text = plain;
    if (at && asprintf(&text, "%.*s" SECRET "%s", (int)(at - plain), plain, at) < 0)
        abort();
    struct store_url store;
    struct node_place place;
    check_engine(text);
    check_nats(text);
    if (store_url_read(text, &store) < 0)
        check_refusal(text);
    if (node_place_read(text, &place))
        assert(*place.host && memchr(place.host, 0, sizeof place.host));
    if (text != plain)
        free(text);
    free(plain);
    return 0;
}
