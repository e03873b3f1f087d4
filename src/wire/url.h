// URL: which engine a URL names.
//
//     mem:                                        in this process, in memory
//     file:DIR                                    in this process, with a store in DIR
//     millrace://[[USER:]SECRET@]HOST[:PORT]      a server; HOST may be [IPV6]
//     millrace://…HOST[:PORT],HOST[:PORT]…        the nodes of a cluster, any of which will do
//     millraces://…                               the same with TLS
//     unix:PATH, unix://[[USER:]SECRET@]/PATH     a server on this machine, by its socket file
//
// In USER and SECRET a byte may be written as %XX; a PATH stands as it is. Pure.
#ifndef WIRE_URL_H
#define WIRE_URL_H

#include "base/store_url.h"

#include <stdbool.h>
#include <stdint.h>

enum { URL_WHERE = 1024, URL_SECRET = 512, URL_HOST = 256, URL_PORT = 8, URL_NODES = 8 };
enum { URL_FILE = 108 }; // bytes of a socket file's path with its zero: the system's limit

struct url_node {
    char host[URL_HOST], port[URL_PORT]; // without a port: the path of a socket file
};

struct engine_url {
    bool local;                 // a store, for an engine in this process
    bool secure;                // millraces://
    struct store_url store;     // if local; borrowed from the text
    char where[URL_WHERE];      // the URL without its secret, for messages
    char place[URL_WHERE - 16]; // HOST:PORT,… as it stands in a URL, or unix:PATH; "": local
    struct url_node nodes[URL_NODES]; // that the URL names; none: local
    uint32_t node_count;
    char user[URL_SECRET], secret[URL_SECRET]; // "": none
};

// Reads `text`. MR_EINVAL: it is not such a URL; the sentence does not repeat it if a secret may be
// in it.
int url_read(const char *text, struct engine_url *out);

// Whether it begins as the URL of a server does.
bool url_is_of_server(const char *text);

#endif
