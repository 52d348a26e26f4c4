//! Reactive values: wrappers around the reactive library that are compiled once.
//!
//! The library is compiled separately for every value type and every closure type; for the dashboard that was a third
//! of the bundle. Here a value is stored behind `dyn Any`, next to a counter. The library handles only counters, texts,
//! flags and boxed closures. Its guarantees hold: handles are `Copy` and live as long as the view that created them,
//! memos are computed when they are read, and an effect runs once for all simultaneous changes.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, RwLock};

use leptos::prelude as library;
use leptos::prelude::{
    Effect, Get as _, GetUntracked as _, GetValue as _, IntoAny as _, RwSignal, Signal, StoredValue,
    Track as _, Update as _,
};
use leptos::tachys::view::any_view::AnyView;

type Read<T> = Box<dyn Fn() -> T + Send + Sync>;
/// Computes the next version from the last one.
type Next = Box<dyn Fn(Option<&u32>) -> u32 + Send + Sync>;
type Anything = Arc<dyn Any + Send + Sync>;

/// A typed slot in the library's arena.
struct Slot<T> {
    at: StoredValue<Anything>,
    holds: PhantomData<fn() -> T>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slot<T> {}

impl<T: Send + Sync + 'static> Slot<T> {
    fn new(value: T) -> Self {
        let boxed: Anything = Arc::new(value);
        Self { at: StoredValue::new(boxed), holds: PhantomData }
    }

    /// Returns the value, unless the view that created it is gone.
    fn held(self) -> Option<Arc<T>> {
        anything(self.at)?.downcast().ok()
    }
}

fn anything(at: StoredValue<Anything>) -> Option<Anything> {
    at.try_get_value()
}

#[cold]
fn gone() -> ! {
    panic!("the view that created this value is gone")
}

/// A value without change notifications.
pub struct Kept<T>(Slot<RwLock<T>>);

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Kept<T> {}

impl<T: Send + Sync + 'static> Kept<T> {
    /// Stores `value` for the lifetime of the view under construction.
    pub fn new(value: T) -> Self {
        Self(Slot::new(RwLock::new(value)))
    }

    /// Reads the value.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        self.try_with(read).unwrap_or_else(|| gone())
    }

    /// Reads the value, if its view still exists.
    pub fn try_with<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        let held = self.0.held()?;
        let held = held.read().ok()?;
        Some(read(&held))
    }

    /// Changes the value, if its view still exists.
    pub fn try_update<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let held = self.0.held()?;
        let mut held = held.write().ok()?;
        Some(change(&mut held))
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        self.try_update(|held| *held = value);
    }

    /// Returns a copy of the value.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// Returns a copy of the value, if its view still exists.
    pub fn try_get(&self) -> Option<T>
    where
        T: Clone,
    {
        self.try_with(T::clone)
    }
}

/// A value that notifies its readers when it is set.
pub struct Var<T> {
    held: Kept<T>,
    changes: RwSignal<u32>,
}

impl<T> Clone for Var<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Var<T> {}

impl<T: Send + Sync + 'static> Var<T> {
    /// Creates a variable with the initial value `value`.
    pub fn new(value: T) -> Self {
        Self { held: Kept::new(value), changes: RwSignal::new(0) }
    }

    /// Subscribes to changes without reading the value.
    pub fn track(&self) {
        self.changes.track();
    }

    /// Reads the value.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        self.track();
        self.held.with(read)
    }

    /// Reads the value without subscribing to changes.
    pub fn with_untracked<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        self.held.with(read)
    }

    /// Returns a copy of the value.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// Returns a copy of the value without subscribing to changes.
    pub fn get_untracked(&self) -> T
    where
        T: Clone,
    {
        self.held.get()
    }

    /// Returns a copy of the value without subscribing to changes, if its view still exists.
    pub fn try_get_untracked(&self) -> Option<T>
    where
        T: Clone,
    {
        self.held.try_get()
    }

    /// Replaces the value and notifies readers.
    pub fn set(&self, value: T) {
        self.update(|held| *held = value);
    }

    /// Changes the value and notifies readers.
    pub fn update(&self, change: impl FnOnce(&mut T)) {
        if self.held.try_update(change).is_some() {
            bump(self.changes);
        }
    }
}

fn bump(changes: RwSignal<u32>) {
    changes.update(|count| *count = count.wrapping_add(1));
}

/// A value computed from signals, which notifies its readers only when it changes.
pub struct Memo<T> {
    held: Kept<Option<T>>,
    version: library::Memo<u32>,
}

impl<T> Clone for Memo<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Memo<T> {}

impl<T: Clone + Send + Sync + 'static> Memo<T> {
    /// Reads the value.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        let _ = self.version.get();
        let value = self.held.try_with(|held| held.as_ref().map(read)).flatten();
        value.unwrap_or_else(|| gone())
    }

    /// Returns a copy of the value.
    pub fn get(&self) -> T {
        self.with(T::clone)
    }

    /// Returns a copy of the value without subscribing to changes.
    pub fn get_untracked(&self) -> T {
        self.try_get_untracked().unwrap_or_else(|| gone())
    }

    /// Returns a copy of the value without subscribing to changes, if its view still exists.
    pub fn try_get_untracked(&self) -> Option<T> {
        self.version.try_get_untracked()?;
        self.held.try_get().flatten()
    }
}

/// Creates a value that is computed from signals and notifies its readers only when it changes.
pub fn memo<T: PartialEq + Send + Sync + 'static>(read: impl Fn() -> T + Send + Sync + 'static) -> Memo<T> {
    fn boxed(read: Next) -> library::Memo<u32> {
        library::Memo::new(read)
    }
    let held = Kept::new(None);
    let version = boxed(Box::new(move |version| {
        let version = version.copied().unwrap_or(0);
        let new = read();
        let changed = held.try_update(|held| {
            let changed = held.as_ref() != Some(&new);
            *held = Some(new);
            changed
        });
        version.wrapping_add(u32::from(changed == Some(true)))
    }));
    Memo { held, version }
}

/// A value that is computed from signals whenever it is read.
pub struct Derived<T>(Slot<Read<T>>);

impl<T> Clone for Derived<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Derived<T> {}

impl<T: 'static> Derived<T> {
    /// Returns the value.
    pub fn get(&self) -> T {
        self.0.held().unwrap_or_else(|| gone())()
    }

    /// Returns the value without subscribing to changes.
    pub fn get_untracked(&self) -> T {
        library::untrack(|| self.get())
    }

    /// Reads the value.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.get())
    }
}

impl<T: Clone + Send + Sync + 'static> From<Var<T>> for Derived<T> {
    fn from(value: Var<T>) -> Self {
        derived(move || value.get())
    }
}

/// Creates a value that is computed from signals whenever it is read.
pub fn derived<T: 'static>(read: impl Fn() -> T + Send + Sync + 'static) -> Derived<T> {
    let read: Read<T> = Box::new(read);
    Derived(Slot::new(read))
}

/// Creates a text that is computed from signals.
pub fn text(read: impl Fn() -> String + Send + Sync + 'static) -> Signal<String> {
    fn boxed(read: Read<String>) -> Signal<String> {
        Signal::derive(read)
    }
    boxed(Box::new(read))
}

/// Creates a flag that is computed from signals.
pub fn flag(read: impl Fn() -> bool + Send + Sync + 'static) -> Signal<bool> {
    fn boxed(read: Read<bool>) -> Signal<bool> {
        Signal::derive(read)
    }
    boxed(Box::new(read))
}

/// Runs `act` now, and again whenever a signal that it reads has changed.
pub fn effect(act: impl FnMut() + 'static) {
    fn boxed(mut act: Box<dyn FnMut()>) {
        Effect::new(move |_| act());
    }
    boxed(Box::new(act));
}

/// Creates a part of the page that is built again whenever a signal that it reads has changed.
pub fn part(make: impl Fn() -> AnyView + Send + Sync + 'static) -> AnyView {
    let make: Read<AnyView> = Box::new(make);
    make.into_any()
}

/// Boxes the handler of a control.
pub fn act<E: 'static>(act: impl FnMut(E) + 'static) -> Box<dyn FnMut(E)> {
    Box::new(act)
}
