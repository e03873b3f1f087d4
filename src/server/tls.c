// See tls.h.
#include "server/tls.h"

#include "server/front.h"

int tls_pour(struct tls *t, struct session *s) {
    size_t room;
    for (uint8_t *to; (to = front_room(s, &room)) != NULL;) {
        ptrdiff_t size = tls_read(t, to, room);
        if (size <= 0)
            return size < 0 ? (int)size : 1;
        host_begin(s->host);
        front_receive(s, (size_t)size);
        if (front_is_over(s))
            session_touch_prompt(s);
    }
    return 0;
}

mr_bytes tls_gather(struct tls *t, struct session *s, size_t most) {
    mr_bytes ready = front_ready(s);
    size_t taken = tls_unsent(t).size;
    for (; ready.size && taken < most; ready = front_ready(s)) {
        ptrdiff_t size = tls_write(t, ready.data, ready.size);
        s->broken = s->broken || size < 0;
        if (size <= 0)
            break;
        front_sent(s, (size_t)size);
        taken += (size_t)size;
    }
    return tls_unsent(t);
}
