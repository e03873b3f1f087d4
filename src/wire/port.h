// The default port of servers and clients.
#ifndef WIRE_PORT_H
#define WIRE_PORT_H

#define WIRE_PORT "7411"

#endif
