// Command app is an application with a bucket: it reads the files that the init
// container of the guide's example writes, as every AWS SDK does.
//
//	aws s3 cp - s3://BUCKET/KEY	stores what it reads, as the AWS CLI does
//	app load BUCKET		writes and reads until it is told to end, and logs each failure
//
// It stands in for the AWS CLI, which few distributions have in a version that
// reads endpoint_url.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	settings, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client := s3.NewFromConfig(settings, func(o *s3.Options) {
		o.UsePathStyle = true // what the example's file says to the CLI alone
		o.RetryMaxAttempts = 1
	})
	switch {
	case len(args) == 4 && strings.Join(args[:3], " ") == "s3 cp -":
		bucket, key, _ := strings.Cut(strings.TrimPrefix(args[3], "s3://"), "/")
		content, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		return put(ctx, client, bucket, key, content)
	case len(args) == 2 && args[0] == "load":
		load(ctx, client, args[1])
		return nil
	}
	return fmt.Errorf("unknown arguments %q", args)
}

func put(ctx context.Context, client *s3.Client, bucket, key string, content []byte) error {
	_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(content)})
	return err
}

// load writes and reads one object ten times a second, and prints what has
// happened once a second.
func load(ctx context.Context, client *s3.Client, bucket string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for requests, failed := 0, 0; ; {
		want := []byte(time.Now().String())
		err := writeAndRead(ctx, client, bucket, want)
		if ctx.Err() != nil {
			fmt.Println("told to end")
			return
		}
		requests++
		if err != nil {
			failed++
			fmt.Println("FAILED:", err)
		}
		if requests%10 == 0 {
			fmt.Printf("%d requests, %d failed\n", 2*requests, failed)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func writeAndRead(ctx context.Context, client *s3.Client, bucket string, want []byte) error {
	if err := put(ctx, client, bucket, "load", want); err != nil {
		return err
	}
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String("load")})
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }()
	have, err := io.ReadAll(out.Body)
	if err == nil && !bytes.Equal(have, want) {
		err = fmt.Errorf("read %q, written was %q", have, want)
	}
	return err
}
