package jws

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Leeway is how far clocks may disagree.
const Leeway = 10 * time.Second

// Seconds is a moment in whole seconds. Only plain, positive integers that a calendar knows are read: fractions,
// exponents and 2^63 are ways to make two readers disagree about the time (attack row B4).
type Seconds int64

const lastSecond = 253402300799 // the end of the year 9999

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Seconds) UnmarshalJSON(data []byte) error {
	var n int64
	if err := json.Unmarshal(data, &n); err != nil {
		return errors.New("a time is not a whole number of seconds")
	}
	if n <= 0 || n > lastSecond {
		return errors.New("a time is out of range")
	}
	*s = Seconds(n)
	return nil
}

// Time is the moment, for whoever counts otherwise.
func (s Seconds) Time() time.Time { return time.Unix(int64(s), 0) }

// NumericDate is the moment as the library validates it, nil for none.
func (s Seconds) NumericDate() *jwt.NumericDate {
	if s == 0 {
		return nil
	}
	return jwt.NewNumericDate(s.Time())
}
