// Package overload sheds load before memory runs out.
//
// Limits of connections, streams, queues and bodies bound what one client can hold. They do not bound what all clients hold
// together, and a process that reaches the limit of its container is killed, with everybody's requests. A Monitor compares the
// memory in use with the limit, several times a second, and from that follows a Level, which says whose requests are served:
//
//	normal     everybody's.
//	shedding   those of nodes, of the control plane's controllers and of system:masters. Others get 503 with Retry-After.
//	critical   the same. Others are refused before anything is done for them, and the connections that hold most are closed.
//	exhausted  those of system:masters.
//
// Health checks and metrics are always answered. The package decides; the server (internal/server) refuses and closes.
//
// # What is in use
//
// The heap holds garbage until it is collected, so that its size says little: with a collector that has room, half of it is garbage
// most of the time. In use for certain is what the last collection found alive, the stacks, and what the runtime itself needs. What
// was allocated since may be garbage or not. The levels follow the first number; the second one counts only when it is beyond the
// whole limit, where the collector does not keep up. When the second crosses a threshold that the first does not, and while load is
// shed, the Monitor asks for collections, at most two a second, so that it neither acts late nor goes on for longer than it must.
//
// A machine that is too busy to take readings in time must not be outrun between two of them: beyond half of the limit, connections
// may bring only so much from one reading to the next (Intake), and what else they bring waits, which their clients notice as TCP's
// back pressure.
//
// What the kernel keeps for this process's control group beside that (buffers of sockets, other processes) counts as in use, the
// pages of files do not.
package overload
