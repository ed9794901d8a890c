package extension_test

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/extension"
)

// Team is a whole kind: no generated code, no scheme, no registration.
type Team struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Members int `json:"members" description:"How many people are in it."`
}

// Teams shows each caller the teams that they are in: a view that depends on who asks.
type Teams struct{ size map[string]int }

// List is all that a provider must have. Get, selectors, Table, watches and the rest follow from it.
func (t Teams) List(_ context.Context, q extension.Query) ([]Team, error) {
	var teams []Team
	for _, group := range q.User.GetGroups() {
		if n, ok := t.size[group]; ok {
			teams = append(teams, Team{ObjectMeta: metav1.ObjectMeta{Name: group}, Members: n})
		}
	}
	return teams, nil
}

func ExampleOf() {
	teams := extension.Of(extension.Definition[Team]{
		Group: "people.example.com", Version: "v1", Plural: "teams", Kind: "Team", Singular: "team",
		PerCaller: true,
		Columns: []extension.Column[Team]{
			{Name: "Name", Type: "string", Format: "name", Value: func(t *Team) any { return t.Name }},
			{Name: "Members", Type: "integer", Value: func(t *Team) any { return t.Members }},
		},
	}, Teams{size: map[string]int{"red": 3, "blue": 5}})

	_ = extension.Config{Resources: []extension.Resource{teams}} // and who vouches for callers: see Config
}
