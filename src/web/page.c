// Serves the files of the page. They need no token; the data that the page requests does.
#include "web/page.h"

#include "base/errors.h"
#include "web/state.h"

#include <string.h>

static const struct page_file *find(mr_bytes path) {
    for (const struct page_file *f = page_files; f->path; f++)
        if (path.size == strlen(f->path) && memcmp(path.data, f->path, path.size) == 0)
            return f;
    return NULL;
}

// Whether the client has the same version in its cache.
static bool has_same_tag(const struct page_file *f, mr_bytes tags) {
    return tags.data && memmem(tags.data, tags.size, f->etag, strlen(f->etag));
}

bool respond_page(struct web_connection *v, const struct http_request *r) {
    const struct page_file *f = find(r->path);
    if (!f)
        return false;
    if (f->gzip && !r->accepts_gzip) {
        error_set(MR_EINVAL, "the page is sent compressed only: Accept-Encoding: gzip is required");
        respond_failure(v, HTTP_PACKED);
        return true;
    }
    bool known = has_same_tag(f, r->if_none_match);
    respond(v, &(struct http_response){ .status = known ? HTTP_NOT_MODIFIED : HTTP_OK,
                                        .type = f->type,
                                        .body = known ? (mr_bytes){ 0 }
                                                      : (mr_bytes){ f->data, f->size },
                                        .etag = f->etag,
                                        .packed = f->gzip,
                                        .lasting = f->lasting });
    return true;
}
