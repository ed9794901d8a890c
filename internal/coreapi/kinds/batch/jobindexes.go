package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// indexRange is a range in a list of indexes, with both ends included.
type indexRange struct{ first, last int32 }

// parseIndexes parses a list such as 1,3-5,7. Indexes must increase and be below completions.
func parseIndexes(text string, completions int32) ([]indexRange, error) {
	if text == "" {
		return nil, nil
	}
	var ranges []indexRange
	for _, part := range strings.Split(text, ",") {
		next, err := parseIndexRange(part, completions)
		if err != nil {
			return nil, err
		}
		if n := len(ranges); n > 0 && ranges[n-1].last >= next.first {
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", ranges[n-1].last, next.first)
		}
		ranges = append(ranges, next)
	}
	return ranges, nil
}

func parseIndexRange(text string, completions int32) (indexRange, error) {
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return indexRange{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	var at [2]int32
	for i, end := range ends {
		n, err := strconv.Atoi(end)
		if err != nil {
			return indexRange{}, fmt.Errorf("cannot convert string to integer for index: %q", end)
		}
		if n >= int(completions) {
			return indexRange{}, fmt.Errorf("too large index: %q", end)
		}
		at[i] = int32(n)
	}
	if len(ends) == 1 {
		return indexRange{at[0], at[0]}, nil
	}
	if at[0] >= at[1] {
		return indexRange{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", at[0], at[1])
	}
	return indexRange{at[0], at[1]}, nil
}
