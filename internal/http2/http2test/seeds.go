package http2test

// ClientSeeds are choices that make ordinary requests, with bodies and trailers, resets and settings.
func ClientSeeds() [][]byte {
	get := []byte{0x20, 0x01, 0, 0, 0, 0, 0, 0, 0}
	post := []byte{0x20, 0x00, 0, 0, 1, 0, 0, 0, 1, 7}
	data := []byte{0x60, 0, 0, 5, 'h', 'e', 'l', 'l', 'o', 0}
	last := []byte{0x60, 0, 1, 0, 0}
	trailers := []byte{0x20, 0x41, 0, 1, 14}
	return [][]byte{
		get, join(get, get, get, get), join(post, data, last), join(post, data, trailers), join(post, data, data, last),
		join(post, []byte{0xb8, 0, 8, 0}, data), join([]byte{0xa8, 0, 2, 4, 0, 1, 2, 0}, get), join(post, []byte{0x90, 0, 0, 6, 0}, data, last),
		join([]byte{0x00, 0x00, 0, 0, 1, 0, 0, 0, 0, 0}, data, last), join(get, []byte{0xd8, 0, 0, 0, 0}, get, []byte{0xe8, 0, 0, 0}),
		join([]byte{0x20, 0x01, 0, 0, 0, 0, 0, 3, 0}, []byte{0x90, 0, 1, 8, 0}, get),
	}
}

// ServerSeeds are choices that make ordinary answers.
func ServerSeeds() [][]byte {
	head := []byte{0x20, 0x00, 0xd1, 0, 0, 0}
	sized := []byte{0x20, 0x00, 0xd1, 0, 0, 1, 7}
	data := []byte{0x60, 0xd1, 0, 5, 'h', 'e', 'l', 'l', 'o', 0}
	end := []byte{0x60, 0xd1, 1, 0, 0}
	trailers := []byte{0x20, 0x41, 0xd1, 1, 14}
	return [][]byte{
		join(head, data, end), join(sized, data, end), join(head, data, trailers), join([]byte{0x20, 0x00, 0xd1, 0, 4, 0}, head, data, end),
		{0x20, 0x01, 0xd1, 0, 2, 0}, join(head, []byte{0xb8, 0xd1, 8, 0}), join([]byte{0xe8, 2, 0, 0}, head, data, end), join([]byte{0xa8, 0, 1, 3, 2, 0}, head, end),
	}
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
