// Served: the store of a running server, as `store copy` reads it (server/backup.h). Its logs can
// be replayed, scanned and read; what they hold is what the server had when it was opened.
#ifndef CLI_STORE_SERVED_H
#define CLI_STORE_SERVED_H

#include "cli/engine.h"
#include "log/log.h"

struct served;

// Connects to the server at the address and begins a backup. MR_EBUSY: there is one already;
// MR_EINVAL: the server is a node of a cluster; MR_ENET; MR_EAUTH; MR_EPERM; MR_ENOMEM.
int served_open(const struct address *, struct served **out, uint32_t *out_shards);

// The log of a shard; to be closed first. MR_ENOMEM.
int served_log(struct served *, uint32_t shard, struct log **out);

// Ends the backup. Takes NULL.
void served_close(struct served *);

#endif
