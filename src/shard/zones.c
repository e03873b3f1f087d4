// See zones.h. The library of C has one zone for the whole process, so it is not used.
#include "shard/zones.h"

#include "base/errors.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ZONE_FILES "/usr/share/zoneinfo"

enum {
    ZONE_FILE_MOST = 64 << 10,
    ZONES_MOST = 64,        // kept at once; then all are read again as they are needed
    ZONE_KEPT_MS = 3600000, // an update of the files counts after this
};

void zones_finish(struct zones *z) {
    for (uint32_t i = 0; i < z->count; i++)
        zone_finish(&z->list[i].zone);
    mem_free(z->list);
    *z = (struct zones){ 0 };
}

// Names lead only to files below the folder.
static bool zone_name_is_plain(mr_bytes name) {
    const char *p = name.data;
    if (!name.size || name.size > ZONE_NAME_MOST || !isalnum((unsigned char)*p))
        return false;
    for (size_t i = 0; i < name.size; i++)
        if (!p[i] || (!isalnum((unsigned char)p[i]) && !strchr("_+-/", p[i])))
            return false;
    return true;
}

static int zone_unknown(mr_bytes name, const char *why) {
    return error_set(MR_EINVAL,
                     "no time zone '%.*s' is known: %s; names are those of " ZONE_FILES
                     ", as Europe/Berlin, or UTC",
                     (int)(name.size < ZONE_NAME_MOST ? name.size : ZONE_NAME_MOST),
                     name.size ? (const char *)name.data : "", why);
}

// The bytes of a regular file; `out` has ZONE_FILE_MOST bytes. -1: errno says why.
static ssize_t zone_file_read(const char *path, uint8_t *out) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t size = -1;
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode))
        size = pread(fd, out, ZONE_FILE_MOST, 0);
    else
        errno = EISDIR;
    int error = errno;
    close(fd);
    errno = error;
    return size;
}

static int zone_load(mr_bytes name, struct zone *out) {
    char path[sizeof ZONE_FILES + ZONE_NAME_MOST + 2];
    if (!zone_name_is_plain(name))
        return zone_unknown(name, "a name has letters, digits and _+-/");
    (void)snprintf(path, sizeof path, ZONE_FILES "/%.*s", (int)name.size, (const char *)name.data);
    uint8_t *file = mem_alloc(ZONE_FILE_MOST);
    if (!file)
        return error_set(MR_ENOMEM, "no memory for a time zone");
    ssize_t size = zone_file_read(path, file);
    int err = size < 0 ? zone_unknown(name, strerror(errno))
                       : zone_parse((mr_bytes){ file, (size_t)size }, out);
    if (err == MR_EINVAL && size >= 0)
        err = zone_unknown(name, "its file cannot be read");
    mem_free(file);
    return err;
}

static struct named_zone *zone_kept(struct zones *z, mr_bytes name) {
    for (uint32_t i = 0; i < z->count; i++)
        if (bytes_equal(mr_str(z->list[i].name), name))
            return &z->list[i];
    return NULL;
}

static int zone_make_place(struct zones *z, mr_bytes name, struct named_zone **out) {
    if (z->count == ZONES_MOST)
        zones_finish(z);
    struct named_zone *list = mem_resize(z->list, (z->count + 1) * sizeof *list);
    if (!list)
        return error_set(MR_ENOMEM, "no memory for a time zone");
    z->list = list;
    *out = &list[z->count];
    **out = (struct named_zone){ 0 };
    memcpy((*out)->name, name.data, name.size);
    return 0;
}

int zones_get(struct zones *z, mr_bytes name, uint64_t now_ms, const struct zone **out) {
    static const struct zone utc = { 0 };
    struct named_zone *kept = zone_kept(z, name);
    struct zone read;
    if (bytes_equal(name, mr_str("UTC"))) {
        *out = &utc;
        return 0;
    }
    if (!kept || kept->read_ms + ZONE_KEPT_MS <= now_ms) {
        int err = zone_load(name, &read);
        if (err < 0 && !kept)
            return err;
        if (!kept && (err = zone_make_place(z, name, &kept)) < 0) {
            zone_finish(&read);
            return err;
        }
        if (err == 0) { // else the rules that were read before still hold
            zone_finish(&kept->zone);
            kept->zone = read;
        }
        z->count += kept == z->list + z->count;
        kept->read_ms = now_ms;
    }
    *out = &kept->zone;
    return 0;
}
