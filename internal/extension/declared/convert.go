package declared

import (
	"math"
	"strconv"
	"time"
)

const timeLayout = time.RFC3339

// types are what a field or a column may be.
var valueTypes = []string{"string", "integer", "number", "boolean", "date"}

// converted is v as a value of one of valueTypes, or false when v says nothing of the kind.
func converted(v any, kind string) (any, bool) {
	switch kind {
	case "string":
		return textOf(v), true
	case "integer":
		f, ok := asNumber(v)
		if i, whole := v.(int64); whole {
			return i, true
		}
		return int64(f), ok && f == math.Trunc(f) && math.Abs(f) < 1<<62
	case "number":
		return asNumberValue(v)
	case "boolean":
		if b, ok := v.(bool); ok {
			return b, true
		}
		b, err := strconv.ParseBool(textOf(v))
		return b, err == nil
	case "date":
		t, ok := asTime(v)
		return t.UTC().Format(timeLayout), ok
	}
	return v, true
}

func asNumberValue(v any) (any, bool) {
	if i, ok := v.(int64); ok {
		return i, true
	}
	return asNumber(v)
}

func asNumber(v any) (float64, bool) {
	switch at := v.(type) {
	case int64:
		return float64(at), true
	case float64:
		return at, true
	case string:
		f, err := strconv.ParseFloat(at, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return 0, false
}

// lastSecond is where a number of seconds cannot be meant any more, so that milliseconds are: the year 5138.
const lastSecond = 1e11

// asTime reads what people write for a moment: RFC 3339, or seconds or milliseconds since 1970.
func asTime(v any) (time.Time, bool) {
	if text, ok := v.(string); ok {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", time.DateOnly} {
			if t, err := time.Parse(layout, text); err == nil {
				return t, true
			}
		}
	}
	seconds, ok := asNumber(v)
	if !ok || seconds <= 0 {
		return time.Time{}, false
	}
	if seconds > lastSecond {
		seconds /= 1000
	}
	if seconds > lastSecond {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(seconds * 1000)), true
}
