// Port: where a server listens and a client looks for it, unless told otherwise.
#ifndef WIRE_PORT_H
#define WIRE_PORT_H

#define WIRE_PORT "7411"

#endif
