package attacks

// class is a line of the list of attacks on HTTP that have names.
type class struct {
	id    string
	title string
	known []string // CVEs and the like
	sides string   // on which sides there must be attacks: server, client or both
}

func rowsOfAll() []*attackRow {
	var all []*attackRow
	for _, rows := range [][]*attackRow{serverFloods()} {
		all = append(all, rows...)
	}
	return all
}
