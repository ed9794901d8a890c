package differential

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// recording is what a server answered: a file of JSON, a line for the server and then one for each step.
type recording struct {
	Server  recorded
	Answers []recordedAnswer
}

// recorded says of what a recording is.
type recorded struct {
	// Version is its gitVersion.
	Version string `json:"server"`
}

type recordedAnswer struct {
	Step string            `json:"step"`
	Says map[string]string `json:"says"`
}

func (r recording) write(file string) error {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(r.Server); err != nil {
		return err
	}
	for _, a := range r.Answers {
		if err := lines.Encode(a); err != nil {
			return err
		}
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func readRecording(file string) (r recording, err error) {
	f, err := os.Open(file)
	if err != nil {
		return r, err
	}
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReader(f))
	lines.DisallowUnknownFields()
	if err := lines.Decode(&r.Server); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	for lines.More() {
		var a recordedAnswer
		if err := lines.Decode(&a); err != nil {
			return r, fmt.Errorf("%s: after %d answers: %w", file, len(r.Answers), err)
		}
		r.Answers = append(r.Answers, a)
	}
	return r, nil
}
