// The connection between a server and a worker.

#include "hvd/ps_inside.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/memory.h"

unsigned char *ps_add(PsLink *link, PsMessage kind, size_t length)
{
    if (!ps_is_sending(link))
        link->sent = link->count = 0;
    size_t begin = link->count;
    link->count += MESSAGE_HEADER + length;
    if (link->room < link->count) {
        link->pending = enlarge(link->pending, link->count, 1);
        link->room = link->count;
    }
    message_header(link->pending + begin, kind, length);
    return link->pending + begin + MESSAGE_HEADER;
}

bool ps_send(PsLink *link)
{
    while (ps_is_sending(link)) {
        long sent = tcp_send(link->socket, link->pending + link->sent, link->count - link->sent);
        if (sent <= 0)
            return sent == 0;
        link->sent += (size_t)sent;
    }
    return true;
}

void ps_tell_lost(PsLink *link, uint32_t gone, double deadline)
{
    memcpy(ps_add(link, PS_FAILED, sizeof gone), &gone, sizeof gone);
    tcp_send_last(link->socket, link->pending + link->sent, link->count - link->sent, deadline);
}

void ps_link_free(PsLink *link)
{
    if (link->socket >= 0)
        close(link->socket);
    message_reader_free(&link->reader);
    free(link->pending);
}
