//! Signals, memos and effects from boxed closures.
//!
//! The reactive library compiles its machinery once for every closure type it is given: for a page of some
//! hundred small closures that was a third of the bundle. Here each closure is boxed first, so that the
//! machinery exists once per value type.

use leptos::prelude::*;

type Read<T> = Box<dyn Fn() -> T + Send + Sync>;

/// A value that follows its signals, computed whenever it is read.
pub fn derived<T: Send + Sync + 'static>(read: impl Fn() -> T + Send + Sync + 'static) -> Signal<T> {
    fn boxed<T: Send + Sync + 'static>(read: Read<T>) -> Signal<T> {
        Signal::derive(read)
    }
    boxed(Box::new(read))
}

/// A text that follows its signals.
pub fn text(read: impl Fn() -> String + Send + Sync + 'static) -> Signal<String> {
    derived(read)
}

/// A yes or no that follows its signals.
pub fn flag(read: impl Fn() -> bool + Send + Sync + 'static) -> Signal<bool> {
    derived(read)
}

/// A value that follows its signals and tells its readers only when it changed.
pub fn memo<T: PartialEq + Send + Sync + 'static>(read: impl Fn() -> T + Send + Sync + 'static) -> Memo<T> {
    fn boxed<T: PartialEq + Send + Sync + 'static>(read: Read<T>) -> Memo<T> {
        Memo::new(move |_| read())
    }
    boxed(Box::new(read))
}

/// Something that is done now, and again whenever what it reads has changed.
pub fn effect(act: impl FnMut() + 'static) {
    fn boxed(mut act: Box<dyn FnMut()>) {
        Effect::new(move |_| act());
    }
    boxed(Box::new(act));
}

/// A part of the page that is made anew whenever what it reads has changed.
pub fn part(make: impl Fn() -> AnyView + Send + Sync + 'static) -> AnyView {
    let make: Read<AnyView> = Box::new(make);
    make.into_any()
}

/// What is done when a control is used.
pub fn act<E: 'static>(act: impl FnMut(E) + 'static) -> Box<dyn FnMut(E)> {
    Box::new(act)
}
