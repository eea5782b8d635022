// A player by franz-go.
package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"players/lines"
)

const (
	readAtMost = 30 * time.Second
	pollAtMost = 200 * time.Millisecond
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type player struct {
	bootstrap string
	login     *lines.Login
	members   map[string]*member
}

type member struct {
	client *kgo.Client
	mutex  sync.Mutex
	held   map[int32]bool
}

func (p *player) client(options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, kgo.SeedBrokers(p.bootstrap))
	if login := p.login; login != nil {
		mechanism := plain.Auth{User: login.User, Pass: login.Password}.AsMechanism()
		if login.Token != "" {
			mechanism = oauth.Auth{Token: login.Token}.AsMechanism()
		}
		options = append(options, kgo.DialTLSConfig(login.TLS()), kgo.SASL(mechanism))
	}
	return kgo.NewClient(options...)
}

func (p *player) Create(asked lines.Request) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	defer client.Close()
	made, err := kadm.NewClient(client).CreateTopic(context.Background(), asked.Partitions, 1, asked.Config, asked.Topic)
	if err != nil {
		return err
	}
	return made.Err
}

func (p *player) Produce(asked lines.Request) error {
	client, err := p.client(
		kgo.ProducerBatchCompression(codecs[asked.Codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, each := range asked.Records {
		record := &kgo.Record{
			Topic: asked.Topic, Partition: each.Partition, Key: lines.Bytes(each.Key), Value: lines.Bytes(each.Value),
		}
		for _, pair := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
		}
		records = append(records, record)
	}
	return client.ProduceSync(context.Background(), records...).FirstErr()
}

func (p *player) Read(asked lines.Request) ([]lines.Record, error) {
	starts := map[int32]kgo.Offset{}
	for number := range asked.Partitions {
		starts[number] = kgo.NewOffset().AtStart()
	}
	client, err := p.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: starts}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, cancel := context.WithTimeout(context.Background(), readAtMost)
	defer cancel()
	var found []lines.Record
	for len(found) < asked.Count {
		more, err := polled(ends, client)
		if err != nil {
			return found, err
		}
		found = append(found, more...)
	}
	return found, nil
}

func polled(ends context.Context, client *kgo.Client) ([]lines.Record, error) {
	found := []lines.Record{}
	fetches := client.PollFetches(ends)
	if err := fetches.Err(); err != nil {
		return found, err
	}
	fetches.EachRecord(func(record *kgo.Record) {
		headers := [][2]string{}
		for _, header := range record.Headers {
			headers = append(headers, [2]string{header.Key, string(header.Value)})
		}
		found = append(found, lines.Record{
			Partition: record.Partition, Offset: record.Offset,
			Key: lines.Text(record.Key), Value: lines.Text(record.Value), Headers: headers,
		})
	})
	return found, nil
}

func (p *player) Join(asked lines.Request) error {
	joined := &member{held: map[int32]bool{}}
	holds := func(does bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, told map[string][]int32) {
			joined.mutex.Lock()
			defer joined.mutex.Unlock()
			for _, number := range told[asked.Topic] {
				if does {
					joined.held[number] = true
				} else {
					delete(joined.held, number)
				}
			}
		}
	}
	client, err := p.client(
		kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.SessionTimeout(9*time.Second), kgo.OnPartitionsAssigned(holds(true)),
		kgo.OnPartitionsRevoked(holds(false)), kgo.OnPartitionsLost(holds(false)),
	)
	joined.client = client
	p.members[asked.Member] = joined
	return err
}

func (p *player) Poll(name string) ([]lines.Record, []int32, error) {
	polling := p.members[name]
	ends, cancel := context.WithTimeout(context.Background(), pollAtMost)
	defer cancel()
	found, err := polled(ends, polling.client)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	polling.mutex.Lock()
	defer polling.mutex.Unlock()
	held := []int32{}
	for number := range polling.held {
		held = append(held, number)
	}
	return found, held, err
}

func (p *player) Commit(name string) error {
	return p.members[name].client.CommitUncommittedOffsets(context.Background())
}

func (p *player) Leave(name string) error {
	leaving := p.members[name].client
	defer leaving.Close()
	return leaving.LeaveGroupContext(context.Background())
}

func (p *player) Reset(asked lines.Request) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	defer client.Close()
	offsets := kadm.Offsets{}
	for number, offset := range asked.Offsets {
		offsets.AddOffset(asked.Topic, number, offset, -1)
	}
	return kadm.NewClient(client).CommitAllOffsets(context.Background(), asked.Group, offsets)
}

func nameOf(err error) string {
	var told *kerr.Error
	if errors.As(err, &told) {
		return told.Message
	}
	return err.Error()
}

func main() {
	lines.Serve(&player{os.Args[1], lines.LoginOf(os.Args), map[string]*member{}}, nameOf)
}
