// A player by sarama.
package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"players/lines"
)

const (
	readAtMost = 30 * time.Second
	pollAtMost = 200 * time.Millisecond
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

type player struct {
	bootstrap []string
	login     *lines.Login
	members   map[string]*member
}

func (p *player) config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	if login := p.login; login != nil {
		made.Net.TLS.Enable, made.Net.TLS.Config = true, login.TLS()
		made.Net.SASL.Enable = true
		made.Net.SASL.User, made.Net.SASL.Password = login.User, login.Password
		if login.Token != "" {
			made.Net.SASL.Mechanism, made.Net.SASL.TokenProvider = sarama.SASLTypeOAuth, token(login.Token)
		}
	}
	return made
}

// token is what its client logs in by.
type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func (p *player) Create(asked lines.Request) error {
	admin, err := sarama.NewClusterAdmin(p.bootstrap, p.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	wanted := &sarama.TopicDetail{
		NumPartitions: asked.Partitions, ReplicationFactor: 1, ConfigEntries: asked.Config,
	}
	return admin.CreateTopic(asked.Topic, wanted, false)
}

func (p *player) Produce(asked lines.Request) error {
	settings := p.config()
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Return.Successes = true
	settings.Producer.Compression = codecs[asked.Codec]
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(p.bootstrap, settings)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, each := range asked.Records {
		message := &sarama.ProducerMessage{Topic: asked.Topic, Partition: each.Partition}
		if each.Key != nil {
			message.Key = sarama.StringEncoder(*each.Key)
		}
		if each.Value != nil {
			message.Value = sarama.StringEncoder(*each.Value)
		}
		for _, pair := range each.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(pair[0]), Value: []byte(pair[1])})
		}
		messages = append(messages, message)
	}
	err = producer.SendMessages(messages)
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) {
		return failed[0].Err
	}
	return err
}

func (p *player) Read(asked lines.Request) ([]lines.Record, error) {
	consumer, err := sarama.NewConsumer(p.bootstrap, p.config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	came := make(chan *sarama.ConsumerMessage)
	done := make(chan struct{})
	defer close(done)
	for number := range asked.Partitions {
		part, err := consumer.ConsumePartition(asked.Topic, number, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer part.AsyncClose()
		go func() {
			for message := range part.Messages() {
				select {
				case came <- message:
				case <-done:
				}
			}
		}()
	}
	found := []lines.Record{}
	ends := time.After(readAtMost)
	for len(found) < asked.Count {
		select {
		case message := <-came:
			found = append(found, told(message))
		case <-ends:
			return found, errors.New("some records did not come")
		}
	}
	return found, nil
}

func told(message *sarama.ConsumerMessage) lines.Record {
	headers := [][2]string{}
	for _, header := range message.Headers {
		headers = append(headers, [2]string{string(header.Key), string(header.Value)})
	}
	return lines.Record{
		Partition: message.Partition, Offset: message.Offset,
		Key: lines.Text(message.Key), Value: lines.Text(message.Value), Headers: headers,
	}
}

// member takes what its sessions are given, of which each is of one generation.
type member struct {
	group   sarama.ConsumerGroup
	topic   string
	cancel  context.CancelFunc
	ended   chan struct{}
	came    chan *sarama.ConsumerMessage
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
	failed  error
}

func (p *player) Join(asked lines.Request) error {
	settings := p.config()
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	settings.Consumer.Group.Session.Timeout = 9 * time.Second
	group, err := sarama.NewConsumerGroup(p.bootstrap, asked.Group, settings)
	if err != nil {
		return err
	}
	until, cancel := context.WithCancel(context.Background())
	joined := &member{
		group: group, topic: asked.Topic, cancel: cancel,
		ended: make(chan struct{}), came: make(chan *sarama.ConsumerMessage),
	}
	p.members[asked.Member] = joined
	go func() {
		defer close(joined.ended)
		for until.Err() == nil {
			if err := group.Consume(until, []string{asked.Topic}, joined); err != nil {
				joined.mutex.Lock()
				joined.failed = err
				joined.mutex.Unlock()
				return
			}
		}
	}()
	return nil
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case m.came <- message:
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func (p *player) Poll(name string) ([]lines.Record, []int32, error) {
	polling := p.members[name]
	found := []lines.Record{}
	for ends, waits := time.After(pollAtMost), true; waits; {
		select {
		case message := <-polling.came:
			found = append(found, told(message))
		case <-ends:
			waits = false
		}
	}
	polling.mutex.Lock()
	defer polling.mutex.Unlock()
	held := []int32{}
	if polling.session != nil {
		held = append(held, polling.session.Claims()[polling.topic]...)
	}
	return found, held, polling.failed
}

func (p *player) Commit(name string) error {
	committing := p.members[name]
	committing.mutex.Lock()
	defer committing.mutex.Unlock()
	if committing.session == nil {
		return errors.New("the member is in no generation")
	}
	committing.session.Commit()
	return nil
}

func (p *player) Leave(name string) error {
	leaving := p.members[name]
	leaving.cancel()
	<-leaving.ended
	return leaving.group.Close()
}

func (p *player) Reset(asked lines.Request) error {
	admin, err := sarama.NewClusterAdmin(p.bootstrap, p.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	offsets := map[int32]sarama.OffsetAndMetadata{}
	for number, offset := range asked.Offsets {
		offsets[number] = sarama.OffsetAndMetadata{Offset: offset, LeaderEpoch: -1}
	}
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{asked.Topic: offsets}
	answer, err := admin.AlterConsumerGroupOffsets(asked.Group, wanted, nil)
	if err != nil {
		return err
	}
	for _, code := range answer.Errors[asked.Topic] {
		if code != sarama.ErrNoError {
			return code
		}
	}
	return nil
}

var names = map[sarama.KError]string{
	sarama.ErrUnknownTopicOrPartition: "UNKNOWN_TOPIC_OR_PARTITION",
	sarama.ErrMessageSizeTooLarge:     "MESSAGE_TOO_LARGE",
	sarama.ErrTopicAlreadyExists:      "TOPIC_ALREADY_EXISTS",
	sarama.ErrUnknownMemberId:         "UNKNOWN_MEMBER_ID",
}

func nameOf(err error) string {
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		err = topic.Err
	}
	var code sarama.KError
	if errors.As(err, &code) && names[code] != "" {
		return names[code]
	}
	return err.Error()
}

func main() {
	lines.Serve(&player{[]string{os.Args[1]}, lines.LoginOf(os.Args), map[string]*member{}}, nameOf)
}
