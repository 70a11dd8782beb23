// What many connections of one wire over TCP take while nothing is sent: memory and processor time.
#pragma once

namespace tenuto {

// Connects one wire of this process to `count` wires of a child process, sends a message over each
// connection, and then waits. Prints the memory that the wire and its connections took, and the
// processor time of this process while it waited, as a sentence or as JSON. Returns the program's
// exit code.
int print_connections(int count, bool json);

}  // namespace tenuto
