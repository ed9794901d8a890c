package server

// growStack makes room on the goroutine's stack while there is little on it. net/http gives each request of HTTP/2 a new
// goroutine, whose stack grows by being copied, frame by frame, as often as it is full; deep in the chain that costs more
// than all filters together.
//
//go:noinline
func growStack(fill bool) (sum byte) {
	if fill { // never: the room of the frame is what counts
		var room [stackRoom]byte
		for i := range room {
			room[i] = byte(i) ^ sum
			sum += room[i/2]
		}
	}
	return sum
}

// stackRoom is what a proxied request needs, and makes a stack of 16 KiB of any smaller one.
const stackRoom = 9 << 10
