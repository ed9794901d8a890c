package sharedreads

import (
	"container/heap"
	"container/list"
)

// userResponses contains the kept responses that one user's requests received.
type userResponses struct {
	name      string
	responses *list.List // of hashes, the most recently used first
	bytes     int64
	index     int // in usersBySize
}

// usersBySize is a heap with the user of the most bytes first. It implements heap.Interface.
type usersBySize []*userResponses

func (u usersBySize) Len() int           { return len(u) }
func (u usersBySize) Less(i, j int) bool { return u[i].bytes > u[j].bytes }

func (u usersBySize) Swap(i, j int) {
	u[i], u[j] = u[j], u[i]
	u[i].index, u[j].index = i, j
}

// Push implements heap.Interface.
func (u *usersBySize) Push(x any) {
	user := x.(*userResponses)
	user.index = len(*u)
	*u = append(*u, user)
}

// Pop implements heap.Interface.
func (u *usersBySize) Pop() any {
	last := len(*u) - 1
	user := (*u)[last]
	(*u)[last] = nil
	*u = (*u)[:last]
	return user
}

// keep adds a response to the cache and evicts responses that exceed its limits. The user with the most bytes loses the
// least recently used response, so that one user's requests do not displace the responses of other users. The caller must
// hold mu.
func (c *Cache) keep(hash uint64, response *kept) {
	c.kept.Remove(hash) // it may be the response of another key
	user := c.users[response.user]
	if user == nil {
		user = &userResponses{name: response.user, responses: list.New()}
		c.users[response.user] = user
		heap.Push(&c.bySize, user)
	}
	response.owner, response.element = user, user.responses.PushFront(hash)
	user.bytes += response.size
	c.bytes += response.size
	heap.Fix(&c.bySize, user.index)
	c.kept.Add(hash, response)
	for c.bytes > c.config.MaxBytes || c.kept.Len() > maxKept {
		c.kept.Remove(c.bySize[0].responses.Back().Value.(uint64))
	}
}

// evicted is called when a response has left the cache. The caller must hold mu.
func (c *Cache) evicted(_ uint64, response *kept) {
	user := response.owner
	c.bytes -= response.size
	user.bytes -= response.size
	user.responses.Remove(response.element)
	if user.responses.Len() == 0 {
		heap.Remove(&c.bySize, user.index)
		delete(c.users, user.name)
		return
	}
	heap.Fix(&c.bySize, user.index)
}

// get returns the kept response with a hash and marks it as used. The caller must hold mu.
func (c *Cache) get(hash uint64) (*kept, bool) {
	response, ok := c.kept.Get(hash)
	if ok {
		response.owner.responses.MoveToFront(response.element)
	}
	return response, ok
}

// receive reports whether there is room for n more bytes of responses that are being received. One user may have half of
// the room.
func (c *Cache) receive(user string, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receiving+n > c.config.MaxBytes || c.receivingBy[user]+n > c.config.MaxBytes/2 {
		return false
	}
	c.receiving += n
	c.receivingBy[user] += n
	return true
}

// received releases n bytes that receive has charged.
func (c *Cache) received(user string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receiving -= n
	if c.receivingBy[user] -= n; c.receivingBy[user] <= 0 {
		delete(c.receivingBy, user)
	}
}
