package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// block is a code block of a page, with the instructions in the comments before it.
type block struct {
	line int
	// language is the language of the fence.
	language string
	text     []string

	notRun, varies, file string
	setups               []string
	words                [][2]string
}

// step is a command with its output.
type step struct {
	line    int
	command string
	// output is nil if the page does not show any.
	output []string
}

// readPage returns the code blocks of a page, and an error for comments without a block.
func readPage(text string) ([]block, error) {
	lines := strings.Split(text, "\n")
	var found []block
	next, commented := block{}, 0
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(strings.TrimLeft(line, " "), "<!--"):
			from := i
			for !strings.Contains(lines[i], "-->") {
				if i++; i == len(lines) {
					return nil, fmt.Errorf("%d: the comment does not end", from+1)
				}
			}
			comment := strings.Join(lines[from:i+1], "\n")
			comment = strings.TrimSpace(strings.TrimPrefix(strings.TrimLeft(comment[:strings.LastIndex(comment, "-->")], " "), "<!--"))
			known, err := next.note(comment)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", from+1, err)
			}
			if known {
				commented = from + 1
			}
		case strings.HasPrefix(line, "```"):
			next.line, next.language = i+2, strings.TrimPrefix(line, "```")
			for i++; i < len(lines) && !strings.HasPrefix(lines[i], "```"); i++ {
				next.text = append(next.text, lines[i])
			}
			found, next, commented = append(found, next), block{}, 0
		case strings.HasPrefix(line, "    ") && (i == 0 || strings.TrimSpace(lines[i-1]) == "" || strings.HasSuffix(lines[i-1], "-->")):
			next.line = i + 1
			for ; i < len(lines) && (strings.HasPrefix(lines[i], "    ") || lines[i] == "" && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    ")); i++ {
				next.text = append(next.text, strings.TrimPrefix(lines[i], "    "))
			}
			i--
			next.text = dedented(next.text)
			found, next, commented = append(found, next), block{}, 0
		case strings.TrimSpace(line) != "" && commented > 0:
			return nil, fmt.Errorf("%d: no block follows the comment", commented)
		}
	}
	if commented > 0 {
		return nil, fmt.Errorf("%d: no block follows the comment", commented)
	}
	return found, nil
}

// dedented are lines without the blanks that all of them begin with: blocks of lists are indented further.
func dedented(lines []string) []string {
	common := -1
	for _, line := range lines {
		if blanks := len(line) - len(strings.TrimLeft(line, " ")); line != "" && (common < 0 || blanks < common) {
			common = blanks
		}
	}
	for i := range lines {
		lines[i] = lines[i][min(max(common, 0), len(lines[i])):]
	}
	return lines
}

// note adds the instruction in a comment, and reports whether it is meant for this test.
func (b *block) note(comment string) (known bool, err error) {
	name, rest, ok := strings.Cut(comment, ":")
	rest = strings.TrimSpace(rest)
	if !ok {
		return false, nil
	}
	switch name {
	case "not run":
		b.notRun = rest
	case "output varies":
		b.varies = rest
	case "file":
		b.file = rest
	case "setup":
		b.setups = append(b.setups, rest)
	case "with":
		for _, word := range strings.Fields(rest) {
			old, with, ok := strings.Cut(word, "=")
			if !ok {
				return true, fmt.Errorf("%q is not NAME=VALUE", word)
			}
			b.words = append(b.words, [2]string{old, with})
		}
	default:
		return false, nil
	}
	if rest == "" {
		return true, fmt.Errorf("nothing follows %s", name)
	}
	return true, nil
}

const prompt = "$ "

// program begins a line that is a command.
var program = regexp.MustCompile(`^(\(cd|aggregator|extserver|kubectl|kubectl-portico|go|make|git|curl|jq|helm|podman|docker|systemctl|install|sudo|tar|unzip|openssl|cp|mv|cd|export|` +
	`etcdctl|etcdutl|sample-apiserver|kube-[a-z-]+) `)

func (b *block) prompts() bool {
	for _, line := range b.text {
		if strings.HasPrefix(line, prompt) {
			return true
		}
	}
	return false
}

// hasCommands reports whether a reader would take the block for commands.
func (b *block) hasCommands() bool {
	switch b.language {
	case "sh", "bash", "console", "shell":
		return true
	case "":
		return b.prompts() || len(b.text) > 0 && program.MatchString(b.text[0])
	}
	return false
}

// steps are the commands of a block. Without a prompt, every line is one.
func (b *block) steps() []step {
	prompts := b.prompts()
	var steps []step
	for i := 0; i < len(b.text); i++ {
		line := b.text[i]
		if prompts && !strings.HasPrefix(line, prompt) {
			if last := len(steps) - 1; last >= 0 {
				steps[last].output = append(steps[last].output, line)
			}
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		s := step{line: b.line + i, command: strings.TrimPrefix(line, prompt)}
		for strings.HasSuffix(s.command, `\`) && i+1 < len(b.text) {
			i++
			s.command += "\n" + b.text[i]
		}
		steps = append(steps, s)
	}
	for i := range steps {
		for n := len(steps[i].output); n > 0 && strings.TrimSpace(steps[i].output[n-1]) == ""; n-- {
			steps[i].output = steps[i].output[:n-1]
		}
		if len(steps[i].output) == 0 {
			steps[i].output = nil
		}
	}
	return steps
}
