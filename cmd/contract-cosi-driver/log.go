package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// logFormat is a flag: how lines of the log are written.
type logFormat string

const (
	textLog logFormat = "text"
	jsonLog logFormat = "json"
)

func (f *logFormat) String() string { return string(*f) }

func (f *logFormat) Type() string { return "format" }

func (f *logFormat) Set(s string) error {
	if format := logFormat(s); format != textLog && format != jsonLog {
		return fmt.Errorf("not %s or %s", textLog, jsonLog)
	}
	*f = logFormat(s)
	return nil
}

// logger writes lines up to a level: as klog's text, or as one JSON object each.
func (f *logFormat) logger(verbosity int, to io.Writer) klog.Logger {
	if *f == jsonLog {
		return logr.FromSlogHandler(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: slog.Level(-verbosity), ReplaceAttr: asText}))
	}
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity), textlogger.Output(to)))
}

// asText gives values the text that the other format has for them, where JSON
// has a number or an object; and levels above 0 the name that people filter by.
func asText(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case slog.Level:
		if v < slog.LevelInfo {
			v = slog.LevelDebug
		}
		a.Value = slog.StringValue(v.String())
	case error, time.Time: // which JSON has as text
	case fmt.Stringer:
		a.Value = slog.StringValue(v.String())
	}
	return a
}
