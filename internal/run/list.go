package run

// List is a doubly linked list with nodes that are embedded in the listed objects, so that insertion and removal do not
// allocate. The caller must guard it. The zero value is empty.
type List[T any] struct{ first, last *Node[T] }

// Node is an item of a List. The zero value is not in a list.
type Node[T any] struct {
	Value          T
	listed         bool
	previous, next *Node[T]
}

// Listed reports whether n is in a list.
func (n *Node[T]) Listed() bool { return n.listed }

// First returns the node that was added first, or nil if the list is empty.
func (l *List[T]) First() *Node[T] { return l.first }

// Append adds n, which is not in a list, at the end.
func (l *List[T]) Append(n *Node[T]) {
	n.listed, n.previous = true, l.last
	if l.last != nil {
		l.last.next = n
	} else {
		l.first = n
	}
	l.last = n
}

// Remove removes n, and reports whether it was in the list.
func (l *List[T]) Remove(n *Node[T]) bool {
	if !n.listed {
		return false
	}
	if n.previous != nil {
		n.previous.next = n.next
	} else {
		l.first = n.next
	}
	if n.next != nil {
		n.next.previous = n.previous
	} else {
		l.last = n.previous
	}
	n.listed, n.previous, n.next = false, nil, nil
	return true
}
