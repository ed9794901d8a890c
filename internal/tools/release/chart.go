package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// writeChart packs the chart as `helm package` does, with the version of the release. Files that the chart links from other
// directories are packed as regular files.
func (r *release) writeChart() error {
	dir := filepath.Join(r.dir, "deploy", "chart")
	var members []member
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, at)
		members = append(members, member{name: "portico/" + filepath.ToSlash(name), data: data})
		return err
	})
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	for i := range members {
		if members[i].name != "portico/Chart.yaml" {
			continue
		}
		if n := len(chartVersion.FindAll(members[i].data, -1)); n != 2 {
			return fmt.Errorf("chart: Chart.yaml has %d lines with a version, want version and appVersion", n)
		}
		members[i].data = chartVersion.ReplaceAllFunc(members[i].data, func(line []byte) []byte {
			if bytes.HasPrefix(line, []byte("appVersion")) {
				return []byte("appVersion: " + r.version)
			}
			return []byte("version: " + strings.TrimPrefix(r.version, "v"))
		})
	}
	packed, err := tarOf(members, r.date)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return r.add("portico-"+strings.TrimPrefix(r.version, "v")+".tgz", packed, nil)
}
